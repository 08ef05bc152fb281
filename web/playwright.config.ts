import { execFileSync } from 'node:child_process';
import { defineConfig } from '@playwright/test';

// Against the mock unless HOLDFAST_CONSOLE names a console; then the rest of what tests/on-up.mjs sets must be there too.
const real = process.env.HOLDFAST_CONSOLE;
// A free port, so that two runs on one machine do not meet. Workers read this file again: they have it from the environment.
const FREE = "const s = require('node:net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close(); })";
process.env.HOLDFAST_MOCK_PORT ??= execFileSync(process.execPath, ['-e', FREE], { encoding: 'utf8' }).trim();
const port = Number(process.env.HOLDFAST_MOCK_PORT);

export default defineConfig({
  testDir: 'tests',
  testMatch: '*.spec.ts',
  timeout: 60_000,
  expect: { timeout: 20_000 },
  // Tests cut links and redrive in one system: one after the other.
  workers: 1,
  fullyParallel: false,
  forbidOnly: Boolean(process.env.CI),
  reporter: [['list']],
  outputDir: 'test-results',
  use: {
    baseURL: real ?? `http://127.0.0.1:${port}`,
    viewport: { width: 1280, height: 800 },
    trace: 'retain-on-failure',
    launchOptions: { executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-background-networking'] },
  },
  webServer: real ? undefined : { command: `node mock/server.js --port ${port} --nodes 1000 --flood`, port, reuseExistingServer: false, timeout: 30_000 },
});
