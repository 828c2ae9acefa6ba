"""Next.js as `create-next-app` writes it, with fonts of Google, which the machine of the tests does not reach."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

FILES = {
    "next.config.ts": """
        import type { NextConfig } from 'next';

        const nextConfig: NextConfig = {};

        export default nextConfig;
    """,
    "tsconfig.json": """
        {"compilerOptions": {"target": "ES2017", "lib": ["dom", "dom.iterable", "esnext"], "strict": true,
          "noEmit": true, "esModuleInterop": true, "module": "esnext", "moduleResolution": "bundler",
          "resolveJsonModule": true, "isolatedModules": true, "jsx": "preserve", "incremental": true,
          "skipLibCheck": true, "plugins": [{"name": "next"}]},
          "include": ["next-env.d.ts", "**/*.ts", "**/*.tsx"], "exclude": ["node_modules"]}
    """,
    "app/layout.tsx": """
        import type { Metadata } from 'next';
        import { Geist, Geist_Mono } from 'next/font/google';

        const geistSans = Geist({ variable: '--font-geist-sans', subsets: ['latin'] });
        const geistMono = Geist_Mono({ variable: '--font-geist-mono', subsets: ['latin'] });

        export const metadata: Metadata = { title: 'Harbor with fonts' };

        export default function RootLayout({ children }: { children: React.ReactNode }) {
          return (
            <html lang="en"><body className={`${geistSans.variable} ${geistMono.variable}`}>{children}</body></html>
          );
        }
    """,
    "app/page.tsx": """
        export default function Home() { return <main>Get started by editing app/page.tsx</main>; }
    """,
}


def starter(name: str, version: str) -> Starter:
    manifest = package(
        scripts={"dev": "next dev", "build": "next build", "start": "next start"},
        dependencies={"next": version, "react": "19.2.0", "react-dom": "19.2.0"},
        devDependencies={"@types/node": "22.19.0", "@types/react": "19.2.2", "typescript": "5.9.3"},
    )
    return Starter(name, "Next.js", {"package.json": manifest, **FILES}, {"/": "Get started by editing"})


# Built by webpack, and by Turbopack.
STARTERS = (starter("next-fonts-webpack", "15.5.6"), starter("next-fonts-turbopack", "16.0.1"))
