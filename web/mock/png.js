// A picture as the cameras of a scale take it, near enough: an animal's back on straw. Written as PNG with what Node has.
import { deflateSync, crc32 } from 'node:zlib';
import { hash, noise } from './random.js';

const table = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});
const checksum = crc32 ?? ((bytes) => {
  let c = 0xffffffff;
  for (const byte of bytes) c = table[(c ^ byte) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
});

function chunk(type, data) {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(data.length);
  head.write(type, 4, 'ascii');
  const body = Buffer.concat([head.subarray(4), data]);
  const tail = Buffer.alloc(4);
  tail.writeUInt32BE(checksum(body));
  return Buffer.concat([head.subarray(0, 4), body, tail]);
}

export function picture(name, width = 320, height = 240) {
  const seed = hash(name);
  const rows = Buffer.alloc((width * 3 + 1) * height);
  const cx = width * (0.42 + 0.16 * noise(seed, 1));
  const cy = height * (0.45 + 0.1 * noise(seed, 2));
  const turn = (noise(seed, 3) - 0.5) * 0.8;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = y * (width * 3 + 1) + 1 + x * 3;
      const grain = noise(seed + (x >> 1), (y >> 1) * 7919) * 26;
      const dx = (x - cx) * Math.cos(turn) + (y - cy) * Math.sin(turn);
      const dy = (y - cy) * Math.cos(turn) - (x - cx) * Math.sin(turn);
      const body = (dx / 98) ** 2 + (dy / 48) ** 2;
      const head = ((dx - 104) / 34) ** 2 + (dy / 25) ** 2;
      const inside = Math.min(body, head);
      const light = 1 - Math.min(1, inside) * 0.35 - (y / height) * 0.15;
      const colour = inside < 1 ? [222 * light, 176 * light, 164 * light] : [118 + grain, 104 + grain, 66 + grain * 0.7];
      for (let c = 0; c < 3; c++) rows[at + c] = Math.max(0, Math.min(255, colour[c] + grain * 0.2));
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk('IHDR', header), chunk('IDAT', deflateSync(rows, { level: 6 })), chunk('IEND', Buffer.alloc(0))]);
}
