import { useState } from 'preact/hooks'

export function Page({ path }) {
  const [count, setCount] = useState(0)
  return (
    <main>
      <h1>{`You are at ${path}`}</h1>
      <button onClick={() => setCount(count + 1)}>{`seen ${count} times`}</button>
    </main>
  )
}
