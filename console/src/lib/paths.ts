/** Return whether a path belongs to a pattern of preact-iso: `:name` is a parameter, `:tab?` may be missing. */
export function isAt(pattern: string, path: string): boolean {
  const [wanted, parts] = [pattern.split("/"), path.split("/")];
  const least = wanted.filter((part) => !part.endsWith("?")).length;
  return parts.length >= least && parts.length <= wanted.length && wanted.every((part, at) => part.startsWith(":") || part === parts[at]);
}
