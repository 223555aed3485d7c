-- As the database's administrator, before the first run.
CREATE ROLE recorder LOGIN PASSWORD '...';
CREATE ROLE signer LOGIN PASSWORD '...';
CREATE DATABASE federation ENCODING 'UTF8' TEMPLATE template0;
REVOKE CONNECT ON DATABASE federation FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE federation TO recorder;
GRANT CONNECT ON DATABASE federation TO signer;
GRANT pg_checkpoint TO recorder;   -- PostgreSQL 15 or newer

-- As recorder, in that database, after the first run made the schema; again after an upgrade.
GRANT USAGE ON SCHEMA rescind_spring TO signer;
GRANT SELECT ON ALL TABLES IN SCHEMA rescind_spring TO signer;
