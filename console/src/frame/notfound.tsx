/** The page of unknown addresses. */

import { Compass } from "lucide-preact";
import { text } from "../text";
import { ButtonLink } from "../ui/button";
import { Empty } from "../ui/feedback";
import { PageHead } from "./page";

export function NotFound() {
  return (
    <>
      <PageHead title={text.frame.notFound} />
      <Empty icon={<Compass size={20} />} action={<ButtonLink href="/">{text.frame.toHome}</ButtonLink>}>
        {text.frame.notFoundHint}
      </Empty>
    </>
  );
}
