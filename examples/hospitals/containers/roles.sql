-- Whoever records, whoever signs, and whoever watches. Passwords are set afterwards, so that this file holds none.
CREATE ROLE recorder LOGIN;
CREATE ROLE signer LOGIN;
CREATE ROLE watcher LOGIN;
REVOKE CONNECT ON DATABASE federation FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE federation TO recorder;
GRANT CONNECT ON DATABASE federation TO signer, watcher;
GRANT pg_checkpoint TO recorder;
-- What the recorder will make, the others may read.
ALTER DEFAULT PRIVILEGES FOR ROLE recorder GRANT USAGE ON SCHEMAS TO signer, watcher;
ALTER DEFAULT PRIVILEGES FOR ROLE recorder GRANT SELECT ON TABLES TO signer, watcher;
