/** A secret that asks before it is shown: what the reveal means, then the value, hidden again after 30 seconds. */

import { Eye, EyeOff } from "lucide-preact";
import { useEffect, useState } from "preact/hooks";
import { text } from "../text";
import { Button } from "./button";
import { CopyButton } from "./copy";
import { Confirm } from "./dialog";

interface RevealProps {
  name: string;
  read: () => Promise<string>; // reads the value from the API; the server notes it
  why?: string | undefined; // why it cannot be revealed
}

const SHOWN_MS = 30_000;

export function Reveal({ name, read, why }: RevealProps) {
  const [value, setValue] = useState<string>();
  const [isAsking, setAsking] = useState(false);
  const isShown = value !== undefined;
  useEffect(() => {
    if (!isShown) return undefined;
    const hide = () => setValue(undefined);
    const timer = setTimeout(hide, SHOWN_MS);
    document.addEventListener("visibilitychange", hide);
    return () => (clearTimeout(timer), document.removeEventListener("visibilitychange", hide));
  }, [isShown]);
  return (
    <span class="copy-line">
      <span class="cut mono revealed" data-shown={isShown}>
        {isShown ? value : "••••••••••••"}
      </span>
      <Button
        kind="quiet"
        size="small"
        label={`${isShown ? text.common.hide : text.common.reveal}: ${name}`}
        why={why}
        icon={isShown ? <EyeOff size={14} aria-hidden="true" /> : <Eye size={14} aria-hidden="true" />}
        onClick={() => (isShown ? setValue(undefined) : setAsking(true))}
      />
      {isShown && <CopyButton value={value} label={`${text.common.copy}: ${name}`} />}
      {isAsking && (
        <Confirm title={text.environment.revealTitle(name)} button={text.common.reveal} act={async () => setValue(await read())} onClose={() => setAsking(false)}>
          <p>{text.environment.revealText}</p>
        </Confirm>
      )}
    </span>
  );
}
