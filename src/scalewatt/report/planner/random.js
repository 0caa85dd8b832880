"use strict";
// Normal deviates as NumPy's default_rng(seed).standard_normal draws them, number for number: the stream of a
// configuration here is that of `scalewatt plan`. SeedSequence and PCG64 (XSL RR 128/64) by M. O'Neill, the
// ziggurat of 256 layers by J. Doornik.

const WORD = (1n << 64n) - 1n;
const STATE = (1n << 128n) - 1n;
const STEP = 0x2360ed051fc65da44385df649fccf645n;

// The CRC-32 of a text of UTF-8, as zlib has it.
function crc32(text) {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

// Four words of 64 bits from a seed below 2^64.
function seedWords(seed) {
  let constant = 0x43b0d7e5;
  const hashed = (value) => {
    const mixed = value ^ constant;
    constant = Math.imul(constant, 0x931e8875);
    const product = Math.imul(mixed, constant);
    return (product ^ (product >>> 16)) >>> 0;
  };
  const mix = (one, other) => {
    const result = (Math.imul(0xca01f9dd, one) - Math.imul(0x4973f715, other)) >>> 0;
    return (result ^ (result >>> 16)) >>> 0;
  };
  const pool = [seed >>> 0, Math.floor(seed / 2 ** 32), 0, 0].map(hashed);
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) {
      if (from !== to) pool[to] = mix(pool[to], hashed(pool[from]));
    }
  }
  let output = 0x8b51f9dd;
  const halves = Array.from({ length: 8 }, (_, place) => {
    const mixed = pool[place % 4] ^ output;
    output = Math.imul(output, 0x58f38ded);
    const product = Math.imul(mixed, output);
    return BigInt((product ^ (product >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((place) => halves[place] | (halves[place + 1] << 32n));
}

// A function that returns the next 64 random bits.
function pcg64(seed) {
  const [high, low, streamHigh, streamLow] = seedWords(seed);
  const increment = ((((streamHigh << 64n) | streamLow) << 1n) | 1n) & STATE;
  let state = (((increment + ((high << 64n) | low)) & STATE) * STEP + increment) & STATE;
  return () => {
    state = (state * STEP + increment) & STATE;
    const folded = (state >> 64n) ^ (state & WORD);
    const turn = state >> 122n;
    return ((folded >> turn) | (folded << (64n - turn))) & WORD;
  };
}

const TAIL = 3.6541528853610088;
const AREA = 0.004928673233974655;

function zigguratTables() {
  const [limits, widths, heights] = [[], [], []];
  const scale = 2 ** 52;
  const density = (x) => Math.exp((-x * x) / 2);
  let x = TAIL;
  const base = AREA / density(TAIL);
  limits[0] = (TAIL / base) * scale;
  limits[1] = 0;
  [widths[0], widths[255]] = [base / scale, TAIL / scale];
  [heights[0], heights[255]] = [1, density(TAIL)];
  for (let layer = 254; layer > 0; layer--) {
    const outer = x;
    x = Math.sqrt(-2 * Math.log(AREA / x + density(x)));
    limits[layer + 1] = (x / outer) * scale;
    widths[layer] = x / scale;
    heights[layer] = density(x);
  }
  return { limits, widths, heights };
}

const ZIGGURAT = zigguratTables();

// A function that returns the next normal deviate of a seed.
function normalDeviates(seed) {
  const next = pcg64(seed);
  const uniform = () => Number(next() >> 11n) / 2 ** 53;
  const { limits, widths, heights } = ZIGGURAT;
  const beyondTail = (size) => {
    for (;;) {
      const x = -Math.log1p(-uniform()) / TAIL;
      const y = -Math.log1p(-uniform());
      if (y + y > x * x) return (size >> 8n) & 1n ? -(TAIL + x) : TAIL + x;
    }
  };
  return () => {
    for (;;) {
      const bits = next();
      const layer = Number(bits & 0xffn);
      const size = (bits >> 9n) & 0xfffffffffffffn;
      const magnitude = Number(size);
      const x = ((bits >> 8n) & 1n ? -magnitude : magnitude) * widths[layer];
      if (magnitude < limits[layer]) return x;
      if (layer === 0) return beyondTail(size);
      const height = heights[layer] + (heights[layer - 1] - heights[layer]) * uniform();
      if (height < Math.exp(-0.5 * x * x)) return x;
    }
  };
}

// `count` normal deviates of a function of `normalDeviates`.
function takeDeviates(draw, count) {
  return Float64Array.from({ length: count }, draw);
}
