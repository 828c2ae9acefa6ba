/** Lines that connect to a database. None contains the password: it comes from the environment. */

import { isPostgres, type Database } from "./state";

export interface Snippet {
  key: string;
  code: string;
}

export function snippetsOf(database: Database): Snippet[] {
  const { host, port, username, database: name } = database.connectionDetails;
  const place = { host: host ?? "localhost", port: port ?? (isPostgres(database) ? 5432 : 3306), username, name };
  return isPostgres(database) ? postgres(place) : mysql(place);
}

interface Place {
  host: string;
  port: number;
  username: string;
  name: string;
}

function postgres({ host, port, username, name }: Place): Snippet[] {
  const shell = `postgresql://${username}:$PGPASSWORD@${host}:${port}/${name}`;
  return [
    { key: "psql", code: `psql "host=${host} port=${port} user=${username} dbname=${name}"` },
    {
      key: "python",
      code: `# pip install "psycopg[binary]"
import os
import psycopg

with psycopg.connect(
    host="${host}", port=${port}, user="${username}", dbname="${name}",
    password=os.environ["PGPASSWORD"],
) as connection:
    print(connection.execute("SELECT version()").fetchone())`,
    },
    {
      key: "node",
      code: `// npm install pg
import pg from "pg";

const pool = new pg.Pool({
  host: "${host}", port: ${port}, user: "${username}", database: "${name}",
  password: process.env.PGPASSWORD,
});
console.log((await pool.query("SELECT version()")).rows[0]);`,
    },
    {
      key: "prisma",
      code: `# .env
DATABASE_URL="${shell}"

# schema.prisma
datasource db {
  provider = "postgresql"
  url      = env("DATABASE_URL")
}`,
    },
  ];
}

function mysql({ host, port, username, name }: Place): Snippet[] {
  return [
    { key: "mysql", code: `mysql --host=${host} --port=${port} --user=${username} --password ${name}` },
    {
      key: "python",
      code: `# pip install pymysql
import os
import pymysql

connection = pymysql.connect(
    host="${host}", port=${port}, user="${username}", database="${name}",
    password=os.environ["MYSQL_PWD"],
)
with connection.cursor() as cursor:
    cursor.execute("SELECT version()")
    print(cursor.fetchone())`,
    },
    {
      key: "node",
      code: `// npm install mysql2
import mysql from "mysql2/promise";

const connection = await mysql.createConnection({
  host: "${host}", port: ${port}, user: "${username}", database: "${name}",
  password: process.env.MYSQL_PWD,
});
console.log((await connection.query("SELECT version()"))[0]);`,
    },
    {
      key: "prisma",
      code: `# .env
DATABASE_URL="mysql://${username}:$MYSQL_PWD@${host}:${port}/${name}"

# schema.prisma
datasource db {
  provider = "mysql"
  url      = env("DATABASE_URL")
}`,
    },
  ];
}
