/** Tiers as cards. */

import { text } from "../../text";
import type { Option } from "../../ui/form";
import type { Tier } from "./state";

export function tierOptions(tiers: Tier[]): Option[] {
  return tiers.map(({ key, name, cpu, memory, disk, paid }) => ({
    value: key,
    label: paid ? `${name} (${text.database.paid})` : name,
    hint: text.database.tierText(cpu, memory, disk),
  }));
}
