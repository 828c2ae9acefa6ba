/** Tiers as cards, and what they include. */

import { useResource } from "../../api/resource";
import { text } from "../../text";
import type { Option } from "../../ui/form";
import type { Database, Tier } from "./state";

export function tierOptions(tiers: Tier[]): Option[] {
  return tiers.map(({ key, name, cpu, memory, disk, paid }) => ({
    value: key,
    label: paid ? `${name} (${text.database.paid})` : name,
    hint: text.database.tierText(cpu, memory, disk),
  }));
}

/** Whether the database has backups and engine metrics; undefined until the tiers are known. */
export function useIsPaid(database: Database): boolean | undefined {
  const tiers = useResource("/v1/tiers", {});
  return tiers.data && (tiers.data.find(({ key }) => key === database.instanceType)?.paid ?? true);
}
