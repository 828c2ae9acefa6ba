/** Test a function in the page. */

import type { TabProps } from "./function";
import { RunPanel } from "./run";

export default function Test({ fn }: TabProps) {
  return <RunPanel fn={fn} />;
}
