/** The size of an app: its tier, as cards. */

import { useResource } from "../../api/resource";
import { text } from "../../text";
import { Loaded } from "../../ui/feedback";
import { Choices } from "../../ui/form";

const t = text.projectSettings;

interface TierChoicesProps {
  value: string; // "" is the first tier, which the server chooses too
  onChange: (key: string) => void;
  problem?: string | undefined;
  label?: string;
}

export function TierChoices({ value, onChange, problem, label = t.tier }: TierChoicesProps) {
  const tiers = useResource("/v1/tiers", {});
  return (
    <>
      <Loaded of={tiers}>
        {(items) => (
          <Choices
            label={label}
            value={value || (items[0]?.key ?? "")}
            onChange={onChange}
            options={items.map((each) => ({ value: each.key, label: each.name, hint: `${t.tierHint(each.cpu, each.memory)}${each.paid ? `, ${t.paid}` : ""}` }))}
          />
        )}
      </Loaded>
      {problem && <p class="small rule-problem">{problem}</p>}
    </>
  );
}
