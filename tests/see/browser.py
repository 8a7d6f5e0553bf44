"""A headless Chromium that a test drives through a pair of pipes (the DevTools protocol): no port, no network."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
         "--remote-debugging-pipe"]
# For a machine that does much else; nothing here takes that long by itself.
PATIENCE = 120


class Browser:
    """One page in one browser, which ends with the `with`."""

    def __init__(self, width=1280, height=1000):
        self.width, self.height = width, height
        self.number = 0
        self.left = b""
        self.events = []
        self.session = None

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="cupool-chromium-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.read_from, self.write_to = ours_in, ours_out
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(["bash", "-c", command, "chromium", PROGRAM, *FLAGS, f"--user-data-dir={self.home}", "about:blank"],
                                        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        page = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.resize(self.width, self.height)
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read_from)
        os.close(self.write_to)
        shutil.rmtree(self.home, ignore_errors=True)

    def read(self):
        """The next message; what was told without being asked is kept."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.left:
            if not select.select([self.read_from], [], [], max(0, end - time.monotonic()))[0]:
                raise RuntimeError("the browser does not answer")
            got = os.read(self.read_from, 1 << 20)
            if not got:
                raise RuntimeError("the browser has ended")
            self.left += got
        message, self.left = self.left.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_to, data):]
        while True:
            answer = self.read()
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer.get("result", {})

    # ---- What a test does.

    def begin_anew(self, width, height):
        """As if it had just been started."""
        self.call("Network.disable")
        self.call("Emulation.setEmulatedMedia", media="")
        self.call("Page.navigate", url="about:blank")
        self.resize(width, height)
        self.mouse("mouseMoved", 0, 0)
        self.wait("location.href === 'about:blank'")
        self.events = []

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def open(self, url):
        """Opens a page, and waits until it has drawn (its body says so) or its script has failed."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")
        self.settle()

    def wait(self, condition):
        """Until a script comes to true: it is asked at each frame."""
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"it does not become true that {condition}")
            self.settle()

    def run(self, script):
        """What a script in the page comes to; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def settle(self):
        """Until what was asked for has been drawn: two frames."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def rectangle(self, selector):
        return self.run(f"(r => [r.x, r.y, r.width, r.height])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")

    def mouse(self, kind, x, y, button="none", clicks=0, held=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=held, clickCount=clicks)

    def place(self, selector, across, down):
        """A place in an element, as shares of its size, after it was scrolled into view."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        self.settle()
        x, y, width, height = self.rectangle(selector)
        return x + across * width, y + down * height

    def hover(self, selector, across=0.5, down=0.5):
        self.mouse("mouseMoved", *self.place(selector, across, down))
        self.settle()

    def click(self, selector, across=0.5, down=0.5):
        x, y = self.place(selector, across, down)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, "left", 1, 1)
        self.mouse("mouseReleased", x, y, "left", 1)
        self.settle()

    def drag(self, selector, begin, end, down=0.5):
        x, y = self.place(selector, begin, down)
        to, _ = self.place(selector, end, down)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, "left", 1, 1)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x + (to - x) * part, y, "left", 0, 1)
        self.mouse("mouseReleased", to, y, "left", 1)
        self.settle()

    def key(self, name, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, text=text if kind == "keyDown" else "")
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def pixels(self, selector):
        """A canvas as one number: another picture has another one."""
        return self.run("(c => { const d = c.toDataURL(); let h = 0; for (let i = 0; i < d.length; ++i) h = (Math.imul(h, 31) + d.charCodeAt(i)) | 0;"
                        f" return h; }})(document.querySelector({json.dumps(selector)}))")

    def picture(self, path, whole=False):
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self):
        """Errors that the page or the browser told of."""
        self.run("1")
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:1000])
            if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(json.dumps(params["args"])[:1000])
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found
