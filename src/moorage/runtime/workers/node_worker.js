'use strict';
// The Node worker: loads one function in its sandbox and runs its calls, strictly one at a time.
//
// It is one file without dependencies, for Node 18 and later. Its loop is on the path of every call, so a call creates
// no closures and copies no data twice. `frames.py` describes the frames. Valid results and all messages are the same
// as in the Python worker; the tests compare the two.

const fs = require('fs');
const Module = require('module');
const path = require('path');
const { pathToFileURL } = require('url');
const util = require('util');

const CHANNEL = 3;
const JOURNAL = 4;
const LOAD = 1;
const LOADED = 17;
const REPLY = 18;
const LATE = 19;
const READY_FRAME = Buffer.from([1, 0, 0, 0, 16]);
const CALL_HEAD = 55; // length, type, id, flags, activation id, deadline
const REPLY_HEAD = 25; // length, type, id, outcome, status, kind, run_us, head length, log length
const ENTRY_HEAD = 13; // stream, epoch ms, length
const DONE = 0;
const FAILED = 1;
const ENDED = 2;
const NO_TYPE = 0;
const HTML = 1;
const JSON_TYPE = 2;
const DECLARED = 3;

const BUFFER = 65536;
const MESSAGE_CHARACTERS = 2000;
const EXIT_BETWEEN_CALLS = 70;
const MAX_U32 = 0xffffffff;
const CLOSED = ['', 'the function closed its standard output', 'the function closed its standard error'];

const HOP_BY_HOP = new Set(
  ['connection', 'content-length', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade']);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const UNSENDABLE = /[\r\n\0]/;
const STATUS = /^[1-5][0-9][0-9]$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
// Unknown application types count as text, else a body that is not base64 would fail.
const IS_BINARY = new RegExp(
  '^(?!.*\\+(?:xml|json|yaml|text)$)(?:(?:image|audio|video|font)/.+|application/(?:octet-stream|pdf|zip|gzip|x-gzip' +
  '|zstd|x-tar|x-bzip2?|x-xz|x-7z-compressed|x-rar-compressed|x-zip-compressed|java-archive|wasm|msword' +
  '|vnd\\.(?!.*\\+).+|x-protobuf|protobuf|msgpack|x-msgpack|cbor|x-font-.+|font-.+|x-shockwave-flash|x-sqlite3' +
  '|.+\\+(?:zip|gzip|cbor)))$');

const realEnv = process.env;
const realExit = process.reallyExit.bind(process);
const drainMicrotasks = process._tickCallback; // Also runs `nextTick` callbacks and reports unhandled rejections.
const writeSync = fs.writeSync;
const readSync = fs.readSync;
const fstatSync = fs.fstatSync;
const ftruncateSync = fs.ftruncateSync;
const hrtime = process.hrtime; // `performance` would load another module.

/** Return monotonic milliseconds. */
function now() {
  const time = hrtime();
  return time[0] * 1e3 + time[1] / 1e6;
}

/** The function's result cannot be sent; the message is for its author. */
class Refused extends Error {}

// ---------------------------------------------------------------------------------------------------------------- logs

let logLimit = 10 * 1024 * 1024;
let logUsed = 0;
let logsCut = false;
let closedStream = '';
let block = Buffer.allocUnsafeSlow(4096);
let blockSize = 0;
const pending = [null, [], []]; // Parts of an unfinished line, by stream.
const since = [0, 0, 0];
let lateScheduled = false;
let lastEntry = -1; // Offset of the last entry in the block.
let journal = -1; // Descriptor of a file that outlives this process, for the logs of a killed call.
let isJournaled = false;

function addLog(number, text) {
  if (logsCut || text === '') return;
  const size = Buffer.byteLength(text);
  logUsed += size;
  if (journal >= 0 && (active || loading)) writeJournal(number, text, size);
  if (logUsed > logLimit) addLastLog(number, text, logLimit - logUsed + size);
  else addLines(number, text);
  if (!active && !loading && !lateScheduled) {
    lateScheduled = true;
    setImmediate(sendLate);
  }
}

function writeJournal(number, text, size) {
  const entry = Buffer.allocUnsafe(ENTRY_HEAD + size);
  entry[0] = number;
  entry.writeBigInt64LE(BigInt(Date.now()), 1);
  entry.writeUInt32LE(size, 9);
  entry.write(text, ENTRY_HEAD);
  try {
    writeSync(journal, entry, 0, entry.length);
    isJournaled = true;
  } catch {
    journal = -1; // The journal is full; the reply still carries the logs.
  }
}

function openJournal() {
  try {
    if (fstatSync(JOURNAL).isFile()) journal = JOURNAL;
  } catch {
    journal = -1; // The worker runs without a journal.
  }
}

function addLastLog(number, text, room) {
  const bytes = Buffer.from(text);
  let end = room;
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end--; // Cut at the start of a character.
  addLines(number, bytes.toString('utf8', 0, end));
  endLine(1);
  endLine(2);
  addLines(2, `the logs were cut: more than ${sizeText(logLimit)}\n`);
  logsCut = true;
}

function addLines(number, text) {
  const pieces = pending[number];
  if (pieces.length === 0) since[number] = Date.now();
  let at = 0;
  for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', at)) {
    pieces.push(at === 0 && end === text.length - 1 ? text : text.slice(at, end + 1));
    endLine(number);
    at = end + 1;
  }
  if (at < text.length) pieces.push(at === 0 ? text : text.slice(at));
}

function endLine(number) {
  const pieces = pending[number];
  if (pieces.length === 0) return;
  const text = pieces.length === 1 ? pieces[0] : pieces.join('');
  pieces.length = 0;
  const need = blockSize + ENTRY_HEAD + text.length * 3;
  if (need > block.length) {
    const larger = Buffer.allocUnsafeSlow(Math.max(need, block.length * 2));
    block.copy(larger, 0, 0, blockSize);
    block = larger;
  }
  const moment = BigInt(since[number]);
  if (lastEntry >= 0 && block[lastEntry] === number && block.readBigInt64LE(lastEntry + 1) === moment) {
    // Lines of the same millisecond share an entry: a million short lines need no million heads.
    blockSize += block.write(text, blockSize);
    block.writeUInt32LE(blockSize - lastEntry - ENTRY_HEAD, lastEntry + 9);
    return;
  }
  lastEntry = blockSize;
  const size = block.write(text, blockSize + ENTRY_HEAD);
  block[blockSize] = number;
  block.writeBigInt64LE(moment, blockSize + 1);
  block.writeUInt32LE(size, blockSize + 9);
  blockSize += ENTRY_HEAD + size;
}

/** Return the block and start a new one; the returned bytes are valid until the next output. */
function takeLogs() {
  endLine(1);
  endLine(2);
  if (isJournaled) {
    isJournaled = false;
    ftruncateSync(JOURNAL, 0);
  }
  return takeLines();
}

function takeLines() {
  const lines = block.subarray(0, blockSize);
  if (block.length > 1 << 20) block = Buffer.allocUnsafeSlow(4096);
  blockSize = 0;
  lastEntry = -1;
  return lines;
}

function hasLogs() {
  return blockSize > 0 || pending[1].length > 0 || pending[2].length > 0;
}

function restartLogs() {
  logUsed = 0;
  logsCut = false;
}

/** Define `process.stdout` and `process.stderr` lazily: many functions never print. */
function defineOutputs() {
  let Output = null;
  for (const [name, number] of [['stdout', 1], ['stderr', 2]]) {
    const get = () => {
      Output = Output || makeOutput();
      const value = new Output(number);
      Object.defineProperty(process, name, { value, configurable: true, enumerable: true });
      return value;
    };
    Object.defineProperty(process, name, { get, configurable: true, enumerable: true });
  }
}

function makeOutput() {
  const { Writable } = require('stream');
  const { StringDecoder } = require('string_decoder');
  return class Output extends Writable {
    constructor(number) {
      super({ decodeStrings: false });
      this.fd = number;
      this._type = 'fs';
      this._decoder = new StringDecoder('utf8');
    }

    write(chunk, encoding, callback) {
      if (typeof encoding === 'function') {
        callback = encoding;
        encoding = undefined;
      }
      if (typeof chunk === 'string' && encoding && !/^utf-?8$/i.test(encoding)) chunk = Buffer.from(chunk, encoding);
      addLog(this.fd, typeof chunk === 'string' ? chunk : this._decoder.write(asBuffer(chunk)));
      if (typeof callback === 'function') process.nextTick(callback, null);
      return true;
    }

    end(chunk, encoding, callback) {
      if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') this.write(chunk, encoding);
      closedStream = closedStream || CLOSED[this.fd];
      for (const each of [chunk, encoding, callback]) if (typeof each === 'function') process.nextTick(each);
      return this;
    }

    destroy() {
      return this.end();
    }
  };
}

function asBuffer(chunk) {
  if (ArrayBuffer.isView(chunk)) return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  throw new TypeError('The "chunk" argument must be of type string or an instance of Buffer, TypedArray, or DataView.');
}

// Native output: written directly to descriptors 1 and 2 by child processes, native code or `fs.writeSync(1, …)`.
// Only a function that loaded one of these modules, or used one of the hooks in `watchModules`, can produce it. Until
// then the worker checks for it only after the last call of a turn, which saves the other calls two system calls.
const NATIVE_WRITERS = new Set(
  ['child_process', 'cluster', 'fs', 'fs/promises', 'inspector', 'inspector/promises', 'net', 'repl', 'trace_events',
    'tty', 'v8', 'wasi', 'worker_threads']);
let mayWriteNatively = false;
let isWatching = false;
const inodes = [0, 0, 0];
const probe = Buffer.allocUnsafeSlow(1);
let nativeIsKept = false;

function watchNativeOutput() {
  for (const number of [1, 2]) {
    const about = fstatSync(number);
    inodes[number] = about.isFile() ? about.ino : 0;
  }
  nativeIsKept = inodes[1] !== 0 && inodes[2] !== 0;
}

/** Set `mayWriteNatively` when the function loads or calls anything that can write to the descriptors. */
function watchModules() {
  if (isWatching) return;
  isWatching = true;
  const load = Module._load;
  Module._load = function (request, ...rest) {
    const name = String(request);
    if (NATIVE_WRITERS.has(name.replace(/^node:/, '')) || name.endsWith('.mjs')) mayWriteNatively = true;
    const loaded = load.call(this, request, ...rest);
    if (!mayWriteNatively && util.types.isModuleNamespaceObject(loaded)) mayWriteNatively = true; // Imports of ES modules bypass this hook.
    return loaded;
  };
  const compile = Module.prototype._compile;
  Module.prototype._compile = function (content, ...rest) {
    if (!mayWriteNatively && /\bimport\s*(?:\(|\/[*/])/.test(content)) mayWriteNatively = true;
    return compile.call(this, content, ...rest);
  };
  for (const name of ['binding', '_linkedBinding', 'dlopen', 'getBuiltinModule', '_rawDebug']) {
    const method = process[name];
    if (typeof method !== 'function') continue;
    process[name] = function (...args) {
      mayWriteNatively = true;
      return method.apply(this, args);
    };
  }
  process.on('warning', () => { mayWriteNatively = true; }); // Node prints the warning.
}

function moveNativeOutput() {
  if (!nativeIsKept) return;
  moveStream(1);
  moveStream(2);
}

function moveStream(number) {
  try {
    if (readSync(number, probe, 0, 1, 0) === 0) return;
    const about = fstatSync(number);
    if (about.ino !== inodes[number]) {
      closedStream = closedStream || CLOSED[number];
      return;
    }
    const bytes = Buffer.allocUnsafe(Math.min(about.size, logLimit + 1));
    const size = readSync(number, bytes, 0, bytes.length, 0);
    ftruncateSync(number, 0);
    addLog(number, bytes.toString('utf8', 0, size));
  } catch {
    closedStream = closedStream || CLOSED[number];
  }
}

function sizeText(size, exact = false) {
  for (const [unit, name] of [[1048576, 'MB'], [1024, 'KB']]) {
    if (size >= unit) {
      const text = (size / unit).toFixed(1);
      return `${exact || !text.endsWith('.0') ? text : text.slice(0, -2)} ${name}`;
    }
  }
  return `${size} bytes`;
}

// ------------------------------------------------------------------------------------------------------------- results

/** Return a value as JSON text; throws Refused with the path of the part that JSON cannot express. */
function stringify(value, where) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    const reason = findInvalidSafely(value, where);
    if (reason === null && !(error instanceof TypeError)) throw error;
    throw new Refused(`the function returned a value that is not JSON: ${reason || firstLine(error.message)}`);
  }
  if (text === undefined) {
    if (value === undefined) return 'null';
    throw new Refused(`the function returned a value that is not JSON: ${findInvalidSafely(value, where) || typeof value}`);
  }
  // `JSON.stringify` replaces invalid values silently; the value is searched only if the text may contain such a one.
  if (text.includes('null') || text.includes('{}') || text.includes('{"0":') || text.includes('"type":"Buffer"')) {
    const reason = findInvalidSafely(value, where);
    if (reason !== null) throw new Refused(`the function returned a value that is not JSON: ${reason}`);
  }
  return text;
}

function findInvalidSafely(value, where) {
  try {
    return findInvalid(value, where, [], true);
  } catch (error) {
    if (error instanceof RangeError) return 'it is nested too deeply';
    throw error;
  }
}

function findInvalid(value, where, above, isTop) {
  if (typeof value === 'number') return Number.isFinite(value) ? null : `${Number.isNaN(value) ? 'NaN' : 'Infinity'} at ${where}`;
  if (typeof value === 'bigint') return `BigInt at ${where}`;
  if (typeof value === 'function' || typeof value === 'symbol') return isTop ? `a ${typeof value} at ${where}` : null;
  if (typeof value !== 'object' || value === null) return null;
  if (above.includes(value)) return `a cycle at ${where}`;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof Map || value instanceof Set ||
      value instanceof Promise) {
    return `${value.constructor.name} at ${where}`;
  }
  if (typeof value.toJSON === 'function') return null;
  above.push(value);
  const names = Array.isArray(value) ? null : Object.keys(value);
  const count = names === null ? value.length : names.length;
  for (let index = 0; index < count; index++) {
    const name = names === null ? index : names[index];
    const reason = findInvalid(value[name], names === null ? `${where}[${index}]` : `${where}.${name}`, above, false);
    if (reason !== null) return reason;
  }
  above.pop();
  return null;
}

function kindText(value) {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return ArrayBuffer.isView(value) ? value.constructor.name : 'an object';
  return typeof value === 'bigint' ? 'a BigInt' : `a ${typeof value}`;
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);
}

// Parts of the response to a web call; global, because one call runs at a time.
let status = 0;
let kind = JSON_TYPE;
let head = '';
let declared = '';

/** Set the parts of the response from a response object, and return the body: a string or bytes. */
function respond(result) {
  if (!isObject(result)) {
    throw new Refused(`the function returned ${kindText(result)}, not an object with statusCode and body`);
  }
  const code = result.statusCode;
  if (code === undefined || code === null) return respondError(result);
  status = typeof code === 'number' && code >= 100 && code <= 599 && Number.isInteger(code) ? code : readStatus(code);
  head = '';
  declared = '';
  if (result.headers !== undefined && result.headers !== null) makeHead(result.headers);
  const body = result.body;
  if (typeof body === 'string') {
    kind = declared === '' ? HTML : DECLARED;
    return result.isBase64Encoded === true || (declared !== '' && IS_BINARY.test(declared)) ? decode(body) : body;
  }
  if (body === undefined || body === null) {
    kind = declared === '' ? NO_TYPE : DECLARED;
    return '';
  }
  kind = declared === '' ? JSON_TYPE : DECLARED;
  return stringify(body, 'result.body');
}

function respondError(result) {
  const error = result.error;
  if (isObject(error) && error.statusCode !== undefined && error.statusCode !== null) return respond(error);
  if (error !== undefined && error !== null) {
    const text = typeof error === 'string' ? error : error instanceof Error ? errorText(error) : stringify(error, 'result.error');
    throw new Refused(`the function returned an error: ${text.slice(0, MESSAGE_CHARACTERS)}`);
  }
  throw new Refused(
    'the function returned an object without statusCode, which a response needs: return {"statusCode": 200, "body": ...}'
  );
}

function readStatus(code) {
  if (typeof code === 'string' && STATUS.test(code)) return Number(code);
  const shown = typeof code === 'string' ? util.inspect(code) : String(code);
  throw new Refused(`statusCode is ${shown.slice(0, 40)}, not a whole number from 100 to 599`);
}

function decode(body) {
  const text = /[ \t\r\n]/.test(body) ? body.replace(/[ \t\r\n]+/g, '') : body;
  if (text.length % 4 !== 0 || !BASE64.test(text)) throw new Refused('the body should be base64, but it is not');
  return Buffer.from(text, 'base64');
}

function makeHead(headers) {
  if (!isObject(headers)) throw new Refused(`headers is ${kindText(headers)}, not an object`);
  const pairs = [];
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value === undefined) continue; // As in JSON.
    if (!TOKEN.test(name)) throw new Refused(`${util.inspect(name.slice(0, 80))} cannot be the name of a header`);
    if (Array.isArray(value)) for (const single of value) addHeader(pairs, name, single);
    else addHeader(pairs, name, value);
  }
  if (pairs.length > 0) head = JSON.stringify(pairs);
}

function addHeader(pairs, name, value) {
  if (typeof value !== 'string' && typeof value !== 'boolean' && !Number.isFinite(value)) {
    throw new Refused(`the header ${name} is ${kindText(value)}, not a string, number, boolean or list of them`);
  }
  const text = typeof value === 'string' ? value : String(value);
  if (UNSENDABLE.test(text)) throw new Refused(`the header ${name} contains a line break or a NUL`);
  const lower = name.toLowerCase();
  if (lower === 'content-type') {
    if (declared !== '' || text.trim() === '') return;
    const semicolon = text.indexOf(';');
    declared = (semicolon < 0 ? text : text.slice(0, semicolon)).trim().toLowerCase();
  }
  if (!HOP_BY_HOP.has(lower)) pairs.push([name, text]);
}

// -------------------------------------------------------------------------------------------------------------- errors

function firstLine(text) {
  const end = text.search(/[\r\n]/);
  return (end < 0 ? text : text.slice(0, end)).slice(0, MESSAGE_CHARACTERS);
}

function errorText(error) {
  try {
    if (!(error instanceof Error)) return firstLine(`the function threw ${util.inspect(error)}`);
    const name = String(error.name || 'Error');
    return firstLine(error.message ? `${name}: ${error.message}` : name);
  } catch {
    return 'the function threw something that cannot be shown';
  }
}

/** Log the stack without frames of the worker and of Node below them; return the message for the caller. */
function showError(error) {
  let text;
  try {
    text = util.inspect(error);
  } catch {
    text = errorText(error);
  }
  addLog(2, withoutOwnFrames(text.split('\n')).join('\n') + '\n');
  return errorText(error);
}

function withoutOwnFrames(lines) {
  const kept = [];
  let isBelow = false; // Below a frame of the worker, the stack has only frames of Node.
  for (const line of lines) {
    const isFrame = /^\s+at /.test(line);
    if (!isFrame) isBelow = false;
    if (isFrame && !isBelow && line.includes(__filename)) {
      isBelow = true;
      while (kept.length > 1 && /^\s+at .*node:internal\//.test(kept[kept.length - 1])) kept.pop();
    }
    if (!isBelow) kept.push(line);
    else if (line.endsWith(' {')) kept[kept.length - 1] += ' {'; // Properties of the error follow.
  }
  return kept;
}

// -------------------------------------------------------------------------------------------------------------- frames

let out = Buffer.allocUnsafeSlow(BUFFER);
let outSize = 0;
let store = Buffer.alloc(0); // Unprocessed input, while a call runs asynchronously or a frame is incomplete.
let storeStart = 0;
let storeEnd = 0;
let answeredTo = 0;
let hasEnded = false;

function writeAll(bytes, size) {
  let at = 0;
  while (at < size) {
    try {
      at += writeSync(CHANNEL, bytes, at, size - at);
    } catch (error) {
      if (error.code !== 'EAGAIN') realExit(0); // The edge is gone.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0.2); // Sleep until the edge has read more.
    }
  }
}

function flush() {
  if (outSize > 0) {
    const size = outSize;
    outSize = 0;
    writeAll(out, size);
  }
}

/** Return a buffer for `size` bytes of output: `out`, to be written at `outSize`, or a new one. */
function room(size) {
  if (outSize + size <= out.length) return out;
  flush();
  return size <= out.length ? out : Buffer.allocUnsafe(size);
}

function addOutput(target, size) {
  if (target === out) outSize += size;
  else writeAll(target, size);
}

function addReply(outcome, body) {
  const logs = hasLogs() ? takeLogs() : null;
  const isText = typeof body === 'string';
  const logSize = logs === null ? 0 : logs.length;
  const target = room(REPLY_HEAD + head.length * 3 + logSize + (isText ? body.length * 3 : body.length));
  const start = target === out ? outSize : 0;
  let at = start + REPLY_HEAD;
  const headSize = head === '' ? 0 : target.write(head, at);
  at += headSize;
  if (logs !== null) at += logs.copy(target, at);
  if (isText) at += body === '' ? 0 : target.write(body, at);
  else at += body.copy(target, at);
  const took = now() - began;
  target.writeUInt32LE(at - start - 4, start);
  target[start + 4] = REPLY;
  target.writeUInt32LE(ident, start + 5);
  target[start + 9] = outcome;
  target.writeUInt16LE(status, start + 10);
  target[start + 12] = kind;
  target.writeUInt32LE(Math.min(MAX_U32, Math.round(took * 1000)), start + 13);
  target.writeUInt32LE(headSize, start + 17);
  target.writeUInt32LE(logSize, start + 21);
  addOutput(target, at - start);
}

function addLate(logs) {
  if (logs.length === 0) return;
  const size = 37 + logs.length;
  const target = room(size);
  const start = target === out ? outSize : 0;
  target.writeUInt32LE(size - 4, start);
  target[start + 4] = LATE;
  target.write(activation, start + 5, 'latin1');
  logs.copy(target, start + 37);
  addOutput(target, size);
}

/** Send the output of timers and callbacks between calls. */
function sendLate() {
  lateScheduled = false;
  if (active || loading || activation === '') return;
  addLate(takeLines());
  flush();
}

function storeBytes(bytes) {
  const have = storeEnd - storeStart;
  if (storeEnd + bytes.length > store.length) {
    const known = have >= 4 ? store.readUInt32LE(storeStart) + 4 : 0;
    const larger = Buffer.allocUnsafeSlow(Math.max(known, (have + bytes.length) * 2, 4096));
    store.copy(larger, 0, storeStart, storeEnd);
    store = larger;
    storeStart = 0;
    storeEnd = have;
  }
  bytes.copy(store, storeEnd);
  storeEnd += bytes.length;
}

function answerStore() {
  try {
    answerAll(store, storeStart, storeEnd);
  } finally {
    storeStart = answeredTo;
  }
  if (storeStart === storeEnd) {
    storeStart = storeEnd = 0;
    if (store.length > BUFFER) store = Buffer.alloc(0);
  }
}

/** Process complete frames up to one that continues asynchronously; `answeredTo` is the end of the last one. */
function answerAll(bytes, at, end) {
  answeredTo = at;
  turnEnd = end;
  isNewTurn = true;
  while (!busy && end - answeredTo >= 4) {
    const start = answeredTo;
    const after = start + 4 + bytes.readUInt32LE(start);
    if (after > end) break;
    answeredTo = after;
    if (bytes[start + 4] === LOAD) load(JSON.parse(bytes.toString('utf8', start + 5, after)));
    else call(bytes, start, after);
  }
  flush();
}

function onData(size, bytes) {
  if (busy || storeEnd > storeStart) {
    storeBytes(bytes.subarray(0, size));
    if (!busy) answerStore();
    return true;
  }
  try {
    answerAll(bytes, 0, size);
  } finally {
    if (answeredTo < size) storeBytes(bytes.subarray(answeredTo, size));
  }
  return true;
}

function onEnd() {
  hasEnded = true;
  if (!busy) realExit(0);
}

// --------------------------------------------------------------------------------------------------------------- calls

let handler = null;
let isLoadRequested = false;
let fixed = {};
let resultLimit = 6 * 1024 * 1024;
let loading = false;
let active = false; // A call runs.
let isNewTurn = true; // Timers and callbacks may have run since the last call.
let turnEnd = 0; // Offset of the end of the received calls.
let isLast = true; // The running call is the last received one.
let busy = false; // A call, or loading, continues after this turn of the event loop.
let ident = 0;
let web = false;
let activation = '';
let deadline = '';
let began = 0;
let settled = 0; // 1: the handler returned or its promise was fulfilled, 2: it threw or was rejected.
let outcomeValue;
let endCode = 1;

function call(bytes, at, after) {
  if (isNewTurn && activation !== '') {
    if (mayWriteNatively) moveNativeOutput();
    if (hasLogs()) addLate(takeLogs());
  }
  isNewTurn = false; // No timer or callback runs before the next call of this turn.
  isLast = after === turnEnd;
  ident = bytes.readUInt32LE(at + 5);
  web = (bytes[at + 9] & 1) === 1;
  activation = bytes.toString('latin1', at + 10, at + 42);
  deadline = bytes.toString('latin1', at + 42, at + CALL_HEAD);
  restartLogs();
  // Replies are sent before the next call runs: if that call ends the process, only it counts as started.
  flush();
  began = now();
  active = true;
  settled = 0;
  try {
    const params = JSON.parse(bytes.toString('utf8', at + CALL_HEAD, after));
    if (typeof params === 'object' && params !== null && !Array.isArray(params)) {
      Object.assign(params, fixed);
      params.__OW_ACTIVATION_ID = activation;
      params.__OW_DEADLINE = deadline;
    }
    outcomeValue = handler(params);
    if (outcomeValue !== null && typeof outcomeValue === 'object' && typeof outcomeValue.then === 'function') {
      Promise.resolve(outcomeValue).then(onFulfilled, onRejected);
    } else {
      settled = 1;
    }
  } catch (error) {
    settled = 2;
    outcomeValue = error;
  }
  drain();
  if (settled !== 0) {
    finish();
  } else {
    busy = true;
  }
}

/** Run the pending microtasks, so that an unhandled rejection is reported before the reply. */
function drain() {
  try {
    drainMicrotasks();
  } catch (error) {
    if (process.listenerCount('uncaughtException') === 1) onUncaught(error, 'uncaughtException');
    // The function has its own listener: rethrow for Node to call it. The call continues in the next turn.
    busy = true;
    if (settled !== 0) setImmediate(finishLater);
    throw error;
  }
}

function onFulfilled(value) {
  settle(1, value);
}

function onRejected(error) {
  settle(2, error);
}

function settle(how, value) {
  settled = how;
  outcomeValue = value;
  if (busy) setImmediate(finishLater);
}

function finishLater() {
  finish();
  busy = false;
  if (hasEnded) realExit(0);
  if (storeEnd > storeStart) answerStore();
  else flush();
}

/** Reply to the call whose handler has settled. */
function finish() {
  const value = outcomeValue;
  outcomeValue = undefined;
  let outcome = DONE;
  let body = '';
  if (settled === 1) {
    try {
      head = '';
      status = 0;
      kind = JSON_TYPE;
      body = web ? respond(value) : stringify(value, 'result');
      checkSize(body);
    } catch (error) {
      outcome = FAILED;
      body = error instanceof Refused ? error.message : showError(error);
    }
  } else {
    outcome = FAILED;
    body = showError(value);
  }
  answer(outcome, body);
}

function checkSize(body) {
  if (body.length * 3 <= resultLimit) return;
  const size = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  if (size > resultLimit) {
    throw new Refused(
      `the function's result is ${sizeText(size, true)}, at most ${sizeText(resultLimit)} are allowed`);
  }
}

function answer(outcome, body) {
  if (mayWriteNatively || isLast || busy) moveNativeOutput();
  if (closedStream !== '') {
    outcome = ENDED;
    body = closedStream;
  }
  if (outcome !== DONE) {
    status = 0;
    kind = JSON_TYPE;
    head = '';
  }
  addReply(outcome, body);
  active = false;
  if (outcome === ENDED) end(endCode);
}

/** Exit after sending all output. */
function end(code) {
  flush();
  realExit(code);
}

// ---------------------------------------------------------------------------------------------------- sudden endings

/** Replacement of `process.exit` that replies to the running call first. */
function exit(code) {
  if (code !== undefined) process.exitCode = code;
  const exitCode = Number(process.exitCode) || 0;
  endWithMessage(`the function called exit (code ${exitCode})`, exitCode);
}

function endWithMessage(message, code) {
  if (loading) endLoading(message);
  if (active) {
    closedStream = message;
    endCode = code;
    answer(ENDED, message);
  }
  moveNativeOutput();
  if (activation !== '' && hasLogs()) addLate(takeLogs());
  end(code);
}

function onUncaught(error, origin) {
  const event = origin === 'unhandledRejection' ? origin : 'uncaughtException';
  if (process.listenerCount(event) > 1) return; // The function has its own listener.
  const label = event === 'unhandledRejection' ? 'unhandled rejection' : 'uncaught exception';
  endWithMessage(`${label}: ${showError(error)}`, EXIT_BETWEEN_CALLS);
}

function onRejection(reason) {
  onUncaught(reason, 'unhandledRejection');
}

// ------------------------------------------------------------------------------------------------------------- loading

const codeFolder = path.resolve(process.argv[2] || '/code');
let loadBegan = 0;

function load(message) {
  loadBegan = now();
  isLoadRequested = loading = true;
  logLimit = message.log_limit;
  resultLimit = message.result_limit;
  try {
    prepare(message);
    watchModules();
    const file = path.join(codeFolder, message.main);
    if (isModule(file)) {
      busy = mayWriteNatively = true;
      importModule(file);
    } else {
      handler = findHandler(requireModule(file, readSource(file)), message.main, 'define');
      drain();
      endLoading('');
    }
  } catch (error) {
    endLoading(error instanceof Refused ? error.message : showError(error));
  }
}

function importModule(file) {
  import(pathToFileURL(file).href).then(
    (exports) => {
      handler = findHandler({ exports }, path.basename(file), 'export');
      setImmediate(endImport);
    },
  ).catch((error) => endLoading(error instanceof Refused ? error.message : showError(error)));
}

function endImport() {
  endLoading('');
  busy = false;
  answerStore();
}

function endLoading(message) {
  if (!loading) return;
  moveNativeOutput();
  message = message || closedStream;
  const logs = takeLogs();
  const size = 14 + logs.length + message.length * 3;
  const target = room(size);
  const start = target === out ? outSize : 0;
  target[start + 4] = LOADED;
  target[start + 5] = message === '' ? 1 : 0;
  target.writeUInt32LE(Math.min(MAX_U32, Math.round((now() - loadBegan) * 1000)), start + 6);
  target.writeUInt32LE(logs.length, start + 10);
  logs.copy(target, start + 14);
  const used = 14 + logs.length + target.write(message, start + 14 + logs.length);
  target.writeUInt32LE(used - 4, start);
  addOutput(target, used);
  loading = false;
  if (message !== '') end(1);
}

/** Set environment, working directory and arguments of the function. */
function prepare(message) {
  const clean = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/tmp', LANG: 'C.UTF-8' };
  for (const name of Object.keys(clean)) if (realEnv[name] === undefined) realEnv[name] = clean[name];
  fixed = Object.assign(Object.fromEntries(message.env), {
    __OW_NAMESPACE: message.namespace,
    __OW_ACTION_NAME: message.action,
    __OW_ACTION_VERSION: message.version,
    __OW_API_HOST: message.api_host,
  });
  Object.assign(realEnv, fixed, { __OW_ACTIVATION_ID: '', __OW_DEADLINE: '' });
  process.env = new Proxy(realEnv, CALL_ENV);
  process.chdir(codeFolder);
  process.argv = [process.argv[0], path.join(codeFolder, message.main)];
}

// `setenv` never frees the replaced value, so setting an activation id per call would leak memory. Child processes get
// their environment from `process.env`, so the proxy alone can provide the two variables of a call.
const CALL_ENV = {
  get(target, name) {
    if (name === '__OW_ACTIVATION_ID') return activation;
    return name === '__OW_DEADLINE' ? deadline : target[name];
  },
  set(target, name, value) {
    target[name] = value;
    return true;
  },
  getOwnPropertyDescriptor(target, name) {
    const descriptor = Reflect.getOwnPropertyDescriptor(target, name);
    if (descriptor !== undefined) descriptor.value = CALL_ENV.get(target, name);
    return descriptor;
  },
};

function isModule(file) {
  if (file.endsWith('.mjs')) return true;
  if (file.endsWith('.cjs')) return false;
  return packageType(path.dirname(file)) === 'module' || hasModuleSyntax(file, readSource(file));
}

function packageType(folder) {
  for (let at = folder; at.startsWith(codeFolder); at = path.dirname(at)) {
    try {
      return JSON.parse(fs.readFileSync(path.join(at, 'package.json'), 'utf8')).type;
    } catch (error) {
      if (error.code !== 'ENOENT') return undefined;
    }
  }
  return undefined;
}

/** Whether an undeclared `.js` file parses only as an ES module, such as `export function main`. */
function hasModuleSyntax(file, source) {
  if (!/^\s*(?:import|export)\b/m.test(source)) return false;
  try {
    const vm = require('vm');
    return !new vm.Script(Module.wrap(source), { filename: file });
  } catch {
    return true;
  }
}

function readSource(file) {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    throw new Refused(`${path.basename(file)} is not a file of the function`);
  }
}

/** Load a CommonJS file; `ownMain` is its `main` function even if it is not exported. */
function requireModule(file, source) {
  const loaded = new Module(file, null);
  loaded.filename = file;
  loaded.paths = Module._nodeModulePaths(path.dirname(file));
  Module._cache[file] = loaded;
  loaded._compile(`${source.replace(/^\uFEFF/, '')}\n;try { module.ownMain = main; } catch {}`, file);
  loaded.loaded = true;
  return loaded;
}

function findHandler(loaded, name, verb) {
  const { exports } = loaded;
  const inner = exports && exports.default;
  const candidates = [exports && exports.main, exports, inner && inner.main, inner, loaded.ownMain];
  const main = candidates.find((candidate) => typeof candidate === 'function');
  if (main === undefined) throw new Refused(`${name} does not ${verb} main`);
  return main;
}

// ------------------------------------------------------------------------------------------------------------ starting

// Warm-up of a waiting worker: some calls in memory, so that V8 has compiled the code before the first real call. It
// runs in short steps, because a worker that starts for a waiting call has hardly time for it.
const WARM_UPS = 16;
const WARM_UP_RESULTS = [
  { statusCode: 200, headers: { 'x-a': 'b' }, body: { a: [1, null] } }, { statusCode: '200', body: 'a' },
  Promise.resolve({ statusCode: 200 }), 1,
];
let warmUps = 0;

function warmUp() {
  if (isLoadRequested) return;
  if (warmUps === 0) warmUpLoading();
  else if (warmUps <= WARM_UPS) warmUpCall(warmUps - 1);
  else showError(new Error('a'));
  takeLogs();
  settled = outSize = 0;
  if (warmUps++ <= WARM_UPS) setImmediate(warmUp);
}

function warmUpLoading() {
  // Not in the function's folder, which is still empty: Node caches the contents of folders.
  const file = path.join(__dirname, 'warm_up.js');
  const source = 'exports.main = (params) => params';
  watchModules();
  packageType(codeFolder);
  readSource(__filename);
  hasModuleSyntax(file, source);
  findHandler(requireModule(file, source), file, 'define');
  delete Module._cache[file];
  moveNativeOutput();
}

function warmUpCall(round) {
  const params = '{"a":"b"}';
  const frame = Buffer.alloc(CALL_HEAD + params.length, 48);
  frame.writeUInt32LE(frame.length - 4, 0);
  frame[4] = 2;
  frame.write(params, CALL_HEAD);
  handler = () => (round >= WARM_UPS - 2 ? console.log('a') : 0, WARM_UP_RESULTS[round % 4]);
  frame[9] = round & 1;
  call(frame, 0, frame.length);
  activation = '';
}

let pipe = null;

/**
 * Pass input to `onData`. Uses the pipe handle below `net`, because loading `net` and its streams takes a sixth of the
 * start time; falls back to `net` where Node's internals differ.
 */
function listen() {
  const buffer = Buffer.allocUnsafeSlow(BUFFER);
  pipe = openPipe(buffer);
  if (pipe !== null) {
    pipe.readStart();
    return;
  }
  const { Socket } = require('net');
  const channel = new Socket({
    fd: CHANNEL, readable: true, writable: false, allowHalfOpen: true, onread: { buffer, callback: onData },
  });
  channel.on('end', onEnd).on('error', onEnd).on('close', onEnd);
  channel.resume();
}

function openPipe(buffer) {
  const { noDeprecation } = process;
  process.noDeprecation = true;
  try {
    const { Pipe, constants } = process.binding('pipe_wrap');
    const { streamBaseState, kReadBytesOrError } = process.binding('stream_wrap');
    const opened = new Pipe(constants.SOCKET);
    if (kReadBytesOrError === undefined || opened.useUserBuffer === undefined) return null;
    opened.open(CHANNEL);
    opened.useUserBuffer(buffer);
    opened.onread = () => {
      const size = streamBaseState[kReadBytesOrError];
      if (size > 0) onData(size, buffer);
      else if (size < 0) onEnd();
    };
    return opened;
  } catch {
    return null;
  } finally {
    process.noDeprecation = noDeprecation;
  }
}

function start() {
  // These variables configure the allocator of this process only; the function must not see or inherit them.
  for (const name of Object.keys(process.env)) if (name.startsWith('MALLOC_')) delete process.env[name];
  defineOutputs();
  loading = true; // No output counts as late before the first call.
  watchNativeOutput();
  openJournal();
  process.exit = exit;
  process.reallyExit = exit;
  process.on('uncaughtException', onUncaught);
  process.on('unhandledRejection', onRejection);
  listen();
  writeAll(READY_FRAME, READY_FRAME.length);
  setImmediate(warmUp);
}

start();
