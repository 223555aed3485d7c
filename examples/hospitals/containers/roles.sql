-- Whoever records, and whoever signs. Passwords are set afterwards, so that this file holds none.
CREATE ROLE recorder LOGIN;
CREATE ROLE signer LOGIN;
REVOKE CONNECT ON DATABASE federation FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE federation TO recorder;
GRANT CONNECT ON DATABASE federation TO signer;
GRANT pg_checkpoint TO recorder;
