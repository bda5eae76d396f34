// Loads a JavaScript file and prints what it exports as one line of JSON behind a mark.
// Arguments: the file, a folder to write to, the mark. Runs in the sandbox.
import { readFileSync, writeFileSync, writeSync } from "node:fs";
import { Module } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [file, folder, mark] = process.argv.slice(1);
const DEEPEST = 20;

// `node -e` leaves these lying about for everybody; a module that is not CommonJS must not find them.
for (const name of ["module", "exports", "require", "__filename", "__dirname"]) delete globalThis[name];

async function load() {
  try {
    return await import(pathToFileURL(file).href);
  } catch (error) {
    // The nearest package.json may say the other kind of module than the file is written as.
    if (error instanceof SyntaxError && /\b(export|import)\b/.test(error.message)) {
      const copy = path.join(folder, "config.mjs");
      writeFileSync(copy, readFileSync(file));
      return await import(pathToFileURL(copy).href);
    }
    if (error instanceof ReferenceError && /^(module|exports|require|__dirname|__filename) /.test(error.message)) {
      return { default: compiled() };
    }
    throw error;
  }
}

function compiled() {
  const module = new Module(file);
  module.filename = file;
  module.paths = Module._nodeModulePaths(path.dirname(file));
  module._compile(readFileSync(file, "utf8"), file);
  return module.exports;
}

function exported(namespace) {
  let value = "default" in namespace ? namespace.default : { ...namespace };
  if (value !== null && typeof value === "object" && value.__esModule && "default" in value) value = value.default;
  return value;
}

function plain(value, place, dropped, depth = 0) {
  if (depth > DEEPEST) throw new Error("what it exports is nested too deeply, or contains itself");
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (Array.isArray(value)) {
    return value.map((one, index) => plain(one, `${place}[${index}]`, dropped, depth + 1))
      .filter((one) => one !== undefined);
  }
  const prototype = typeof value === "object" ? Object.getPrototypeOf(value) : undefined;
  if (prototype !== null && prototype !== Object.prototype) {
    if (value !== undefined) dropped.push(place);
    return undefined;
  }
  const entries = Object.entries(value)
    .map(([key, one]) => [key, plain(one, place ? `${place}.${key}` : key, dropped, depth + 1)]);
  return Object.fromEntries(entries.filter(([, one]) => one !== undefined));
}

function lineIn(error) {
  const name = path.basename(file).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const place = new RegExp(`(?:${name}|config\\.mjs):(\\d+)`).exec(String(error?.stack ?? ""));
  return place ? Number(place[1]) : null;
}

async function outcome() {
  try {
    const value = await exported(await load());
    const kind = value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
    if (kind !== "object") return { kind };
    const dropped = [];
    return { values: plain(value, "", dropped), dropped };
  } catch (error) {
    return { error: String(error?.message ?? error), name: String(error?.name ?? "Error"), line: lineIn(error) };
  }
}

function say(text) {
  for (let bytes = Buffer.from(text); bytes.length;) {
    try {
      bytes = bytes.subarray(writeSync(1, bytes));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

say(`\n${mark}${JSON.stringify(await outcome())}\n`);
process.exit(0);
