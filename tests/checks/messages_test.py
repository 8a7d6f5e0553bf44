"""All messages that a user can see are in one list, which this test prints, and each was read once."""

import harness
import messages

READ = harness.SOURCE / "tests" / "data" / "messages.txt"


class MessagesTest(harness.TestCase):
    def test_every_message_that_a_user_can_see_has_been_read(self):
        now = messages.as_text(harness.SOURCE)
        print(now)
        unread = sorted(set(now.splitlines()) - set(READ.read_text().splitlines()))
        self.assertEqual([], unread, "read each aloud (what happened, what it means, what to do), then messages.py --write")
        self.assertEqual([], sorted(set(READ.read_text().splitlines()) - set(now.splitlines())), "said no more: messages.py --write")

    def test_the_list_finds_what_is_said(self):
        said = {text for _, text in messages.messages(harness.SOURCE)}
        for part in ("double free of", "failed: out of memory", "unknown option", "lets it pass", "nothing was started",
                     "cannot write the report", "is watching", "did you mean"):
            self.assertTrue(any(part in text for text in said), part)


if __name__ == "__main__":
    harness.main()
