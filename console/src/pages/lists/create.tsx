/** The primary button of a list; only where the page exists, and disabled with the reason for viewers. */

import { Plus } from "lucide-preact";
import { can, whyNot } from "../../lib/roles";
import { hasPage } from "../../pages";
import { Button, ButtonLink } from "../../ui/button";

export function CreateButton({ href, label }: { href: string; label: string }) {
  if (!hasPage(href)) return null;
  const icon = <Plus size={15} aria-hidden="true" />;
  return can("member") ? (
    <ButtonLink kind="primary" href={href} icon={icon}>
      {label}
    </ButtonLink>
  ) : (
    <Button kind="primary" why={whyNot("member")} icon={icon}>
      {label}
    </Button>
  );
}
