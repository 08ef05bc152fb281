import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The console sends `default-src 'self'`: nothing may be inlined, neither small images as data addresses nor the preload script.
export default defineConfig({
  plugins: [svelte()],
  base: '/',
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  server: {
    proxy: { '/api': { target: process.env.HOLDFAST_CONSOLE ?? 'http://127.0.0.1:7710' } },
  },
});
