/** Says that a tier does not include something, and where to change it. */

import { Sparkles } from "lucide-preact";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Card, Empty } from "../../ui/feedback";
import { paths } from "./state";

const t = text.database;

export function NeedsPaid({ name }: { name: string }) {
  return (
    <Card>
      <Empty icon={<Sparkles size={20} />} action={<ButtonLink href={paths(name, "settings")}>{t.toSettings}</ButtonLink>}>
        {t.needsPaid} {t.needsPaidText}
      </Empty>
    </Card>
  );
}
