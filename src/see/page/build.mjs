// Bundles source/ into one HTML file: node build.mjs [file]; without a name it is page.html, which the command
// is built with. The script's hash stands in the page's policy, so that no other script runs in it.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { dirname, join } from 'node:path';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const common = { bundle: true, minify: true, write: false, legalComments: 'none', charset: 'utf8', absWorkingDir: here };
const script = await build({ ...common, entryPoints: ['source/main.ts'], format: 'iife', target: 'es2022' });
const style = await build({ ...common, entryPoints: ['source/style.css'], outdir: 'out' });
const js = script.outputFiles[0].text.trim();
const css = style.outputFiles[0].text.trim();
if (js.includes('</script') || css.includes('</style')) throw new Error('the bundle would end its own element');

const version = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8')).devDependencies.uplot;
const hash = createHash('sha256').update(js).digest('base64');
const page = readFileSync(join(here, 'source/page.html'), 'utf8')
  .replace('@POLICY@', () => `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`)
  .replace('@NOTICE@', () => `uPlot ${version}, Copyright (c) 2022 Leon Sorokin, is in this page, under the MIT License.`)
  .replace('@STYLE@', () => css)
  .replace('@SCRIPT@', () => js);
writeFileSync(process.argv[2] ?? join(here, 'page.html'), page);
