/** The list of keyboard shortcuts, opened with `?`. */

import { signal } from "@preact/signals";
import { allShortcuts, keysToShow } from "../lib/keyboard";
import { text } from "../text";
import { Dialog } from "../ui/dialog";

export const isHelpOpen = signal(false);

export function Help() {
  return (
    <Dialog title={text.help.title} onClose={() => (isHelpOpen.value = false)}>
      <dl class="shortcut-list">
        {allShortcuts().map(({ keys, label }) => (
          <>
            <dt>{label}</dt>
            <dd>
              {keysToShow(keys).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}
