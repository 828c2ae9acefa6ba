/** CodeMirror with the languages of the platform. Only `editor.tsx` imports it, on demand. */

import { autocompletion, closeBrackets } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { sql } from "@codemirror/lang-sql";
import { bracketMatching, indentOnInput, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
import { go } from "@codemirror/legacy-modes/mode/go";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter, tagHighlighter, tags } from "@lezer/highlight";
import { StyleModule } from "style-mod";

export interface EditorOptions {
  name: string; // its ending selects the language
  label: string;
  value: string;
  isReadOnly: boolean;
  onChange: (value: string) => void;
  onSave: () => void;
}

export interface OpenEditor {
  set: (value: string) => void;
  close: () => void;
}

// Classes instead of styles, so that both themes share them.
const functions = tagHighlighter([
  { tag: tags.function(tags.variableName), class: "tok-function" },
  { tag: tags.function(tags.propertyName), class: "tok-function" },
  { tag: tags.typeName, class: "tok-type" },
]);

/**
 * CodeMirror adds a `<style>` element to a document, which the Content-Security-Policy forbids, but constructed sheets to
 * a shadow root, which it allows. Its set of sheets is kept at the root, so the document gets the one of a shadow root.
 */
function allowStyles(): void {
  const root = document.createElement("div").attachShadow({ mode: "open" });
  StyleModule.mount(root, new StyleModule({}));
  for (const key of Object.getOwnPropertySymbols(root)) Object.assign(document, { [key]: Reflect.get(root, key) });
}

allowStyles();

function languageOf(name: string): Extension {
  const ending = name.toLowerCase().replace(/^.*[./]/, "");
  if (["js", "mjs", "cjs", "jsx"].includes(ending)) return javascript({ jsx: true });
  if (["ts", "tsx", "mts"].includes(ending)) return javascript({ jsx: true, typescript: true });
  if (ending === "py") return python();
  if (ending === "json") return json();
  if (ending === "sql") return sql();
  if (ending === "go") return StreamLanguage.define(go);
  if (["yml", "yaml"].includes(ending)) return StreamLanguage.define(yaml);
  if (ending === "dockerfile") return StreamLanguage.define(dockerFile);
  return [];
}

export function openEditor(parent: HTMLElement, options: EditorOptions): OpenEditor {
  const save = { key: "Mod-s", preventDefault: true, run: () => (options.onSave(), true) };
  let isSetting = false;
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: options.value,
      extensions: [
        lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), autocompletion(),
        highlightActiveLine(), highlightSelectionMatches(),
        syntaxHighlighting(classHighlighter), syntaxHighlighting(functions), languageOf(options.name),
        keymap.of([save, ...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
        EditorView.contentAttributes.of({ "aria-label": options.label }),
        EditorState.readOnly.of(options.isReadOnly),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !isSetting) options.onChange(update.state.doc.toString());
        }),
      ],
    }),
  });
  // Heights are measured before the font is there.
  void document.fonts.ready.then(() => view.requestMeasure());
  return {
    set: (value) => {
      const now = view.state.doc.toString();
      if (value === now) return;
      isSetting = true;
      view.dispatch({ changes: { from: 0, to: now.length, insert: value } });
      isSetting = false;
    },
    close: () => view.destroy(),
  };
}
