CREATE SCHEMA rescind_frozen_history;
CREATE TABLE rescind_frozen_history.bounds (
    sequence integer NOT NULL,
    seal bytea NOT NULL,
    content bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.bounds ALTER COLUMN sequence SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.bounds ALTER COLUMN seal SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.bounds ALTER COLUMN seal SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.bounds ALTER COLUMN content SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.bounds ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.branch (
    number integer NOT NULL,
    last_round integer NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.branch ALTER COLUMN number SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.branch ALTER COLUMN last_round SET STATISTICS 0;
CREATE TABLE rescind_frozen_history.client (
    pseudonym integer NOT NULL,
    key bytea,
    name_leaf bytea
);
ALTER TABLE ONLY rescind_frozen_history.client ALTER COLUMN pseudonym SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client ALTER COLUMN key SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client ALTER COLUMN key SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.client ALTER COLUMN name_leaf SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client ALTER COLUMN name_leaf SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.client_update (
    branch integer NOT NULL,
    round integer NOT NULL,
    client integer NOT NULL,
    digest bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.client_update ALTER COLUMN branch SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client_update ALTER COLUMN round SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client_update ALTER COLUMN client SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client_update ALTER COLUMN digest SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client_update ALTER COLUMN digest SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.identity (
    pseudonym integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    label text,
    nonce bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.identity ALTER COLUMN pseudonym SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.identity ALTER COLUMN name SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.identity ALTER COLUMN label SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.identity ALTER COLUMN nonce SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.identity ALTER COLUMN nonce SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.journal (
    sequence integer NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    "time" text NOT NULL,
    body text NOT NULL,
    root bytea NOT NULL,
    head bytea NOT NULL,
    stamp bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN sequence SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN kind SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN "time" SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN root SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN root SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN head SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN head SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN stamp SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.journal ALTER COLUMN stamp SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.kept (
    branch integer NOT NULL,
    round integer NOT NULL,
    model bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.kept ALTER COLUMN branch SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.kept ALTER COLUMN round SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.kept ALTER COLUMN model SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.kept ALTER COLUMN model SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.participation (
    segment integer NOT NULL,
    client integer NOT NULL,
    round integer NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.participation ALTER COLUMN segment SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.participation ALTER COLUMN client SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.participation ALTER COLUMN round SET STATISTICS 0;
CREATE TABLE rescind_frozen_history.round (
    sequence integer NOT NULL,
    branch integer NOT NULL,
    round integer NOT NULL,
    factor double precision NOT NULL,
    rounding double precision NOT NULL,
    update_norm double precision NOT NULL,
    model bytea NOT NULL,
    salt bytea NOT NULL,
    participants bytea NOT NULL,
    gram bytea
);
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN sequence SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN branch SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN round SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN factor SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN rounding SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN update_norm SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN model SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN model SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN salt SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN salt SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN participants SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN participants SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN gram SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.round ALTER COLUMN gram SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.run (
    schema_version integer NOT NULL,
    name text NOT NULL,
    secret bytea NOT NULL,
    secret_check bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.run ALTER COLUMN schema_version SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.run ALTER COLUMN name SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.run ALTER COLUMN secret SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.run ALTER COLUMN secret SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.run ALTER COLUMN secret_check SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.run ALTER COLUMN secret_check SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.stretch (
    branch integer NOT NULL,
    origin_branch integer NOT NULL,
    origin_round integer NOT NULL,
    common_factor boolean NOT NULL,
    salt bytea NOT NULL,
    remaining bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN branch SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN origin_branch SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN origin_round SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN common_factor SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN salt SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN salt SET STORAGE EXTERNAL;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN remaining SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.stretch ALTER COLUMN remaining SET STORAGE EXTERNAL;
CREATE TABLE rescind_frozen_history.suppression (
    digest text NOT NULL COLLATE pg_catalog."C",
    pseudonym integer NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.suppression ALTER COLUMN digest SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.suppression ALTER COLUMN pseudonym SET STATISTICS 0;
INSERT INTO rescind_frozen_history.bounds VALUES (17, '\x38ab1052e90faba7ca107e2030b29880626460ee76ea57541c051f8092ce62db', '\x626f756e647320310a90030000000000007b22636f756e7473223a7b226474797065223a22493634222c227368617065223a5b335d2c22646174615f6f666673657473223a5b302c32345d7d2c226c656773223a7b226474797065223a22493634222c227368617065223a5b322c335d2c22646174615f6f666673657473223a5b32342c37325d7d2c22726574656e74696f6e2e636c69656e7473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b37322c3132305d7d2c22726574656e74696f6e2e666972737473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3132302c3136385d7d2c22726574656e74696f6e2e6e6f646573223a7b226474797065223a22493634222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3136382c3139325d7d2c22726574656e74696f6e2e707369223a7b226474797065223a22463634222c227368617065223a5b362c335d2c22646174615f6f666673657473223a5b3139322c3333365d7d2c22747261636b65722e636c69656e7473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3333362c3336305d7d2c22747261636b65722e666c6f6f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3336302c3339325d7d2c22747261636b65722e6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3339322c3432345d7d2c22747261636b65722e6c6f775f6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3432342c3435365d7d2c22747261636b65722e6e6f646573223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3435362c3438305d7d2c22747261636b65722e707369223a7b226474797065223a22463634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3438302c3532385d7d2c22747261636b65722e726f756e6473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3532382c3535325d7d7d20202020200000000000000000050000000000000003000000000000000000000000000000000000000000000000000000000000000100000000000000010000000000000002000000000000000400000000000000060000000000000001000000000000000200000000000000030000000000000005000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000020000000000000003000000000000000000000000000000317e7f20b786db3f33c89e30c12ae13f0000000000000000000000000000f07f000000000000f07f0000000000000000c5ad5daa773ee73f8a2b5c5ac8a1ec3f00000000000000006fc2b7e6e7dde23f67b44d60148be73f0000000000000000b52f5a3925ebe23f3b05e875fb89e73f000000000000000037852b8892bdd73fcfcbf6133939dd3f0100000002000000030000000400000005000000060000000000000000000000000000000000000036036995ccda1f3e90125ae0b6d72e3e00000000000000000000000000000000221cf61b7f07afbf211cf61b7f07bfbf00000000000000000000000000000000261cf61b7f07afbf271cf61b7f07bfbf0300000003000000030000000300000003000000010000005c32e159c8a1ec3f4a96e85f148be73fd5eb8275fb89e73fdf0c5530c12ae13f334879133939dd3f000000000000f07f020000000200000002000000020000000200000000000000');
INSERT INTO rescind_frozen_history.branch VALUES (0, 3);
INSERT INTO rescind_frozen_history.branch VALUES (1, 2);
INSERT INTO rescind_frozen_history.client VALUES (1, '\xa5c0b249e368ba114ed15285b19e5d2b6c17171a2fb6eb7d1654dd63f46246a1', NULL);
INSERT INTO rescind_frozen_history.client VALUES (2, '\x77abafc5902f380cd8c8de5ec7d92c52e2bbacf3d258d1fb5ae1078b682308d9', NULL);
INSERT INTO rescind_frozen_history.client VALUES (3, '\x8c4e40b0d6058e1627a4750c05883bd286754640d8436b2702c749ab43ed98ee', NULL);
INSERT INTO rescind_frozen_history.client VALUES (4, '\x3b794d436f4c57dbb32401e3393f36680fd335f59fa635a9b32052be1f4777ff', NULL);
INSERT INTO rescind_frozen_history.client VALUES (5, '\xc19b2aeddc7ec777c06d039cf51437b4515a375525f2592b1bf52ae93c979150', NULL);
INSERT INTO rescind_frozen_history.client VALUES (6, NULL, '\x2133bc25aa8221fbdb9d3c5ee2ba9035cf199f8f356c89df6ed06b7f4c6405e8');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 1, '\x69cdd5bb6cc20a3a93dabca5e6b47cfdbb94b091522e24b91e792bbcdd974c55');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 2, '\xee6f8b80e2892db93c01a8b91f7d6c09f6efaf67f1a40d86035c59d2fbc141d5');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 3, '\x1b15fb054a03983bdbd17ef8fc3c8226363c25de348deb74f08fcc82c1ba5956');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 4, '\x8c945aa8bc092365341d9fbea916e7fa62ad15716b99ce3c8ef27adfbd1b5b41');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 5, '\x280a70f1861ef2a5736792d783454b047efa994fef9ccd13dc45b52951184239');
INSERT INTO rescind_frozen_history.identity VALUES (1, 'clinic-0', NULL, '\x2b80c0b107cba5394bd3820a80b64d9ef4e9a7faeabb3a63016ad2f7f4bf20e2');
INSERT INTO rescind_frozen_history.identity VALUES (2, 'clinic-1', NULL, '\xb77f200712f474cc1823aedda69a6e291efff904b74f7e13411a5d86f4958943');
INSERT INTO rescind_frozen_history.identity VALUES (4, 'clinic-3', NULL, '\x58fc05b414d1d258c5837978ca9d2d1687dfa0a5dfe821b08c57d23f743e18b2');
INSERT INTO rescind_frozen_history.identity VALUES (5, 'clinic-4', NULL, '\x885553b2665282e8929a4316b900c89867cfc60ed8d96a434751d1b7d1a29325');
INSERT INTO rescind_frozen_history.identity VALUES (3, 'clinic-2', 'Clinic of the North', '\x2a1801a00b0781791a4327929b7989ac39b818d284d2607b9cec2204bc8b25cb');
INSERT INTO rescind_frozen_history.journal VALUES (1, 'run', '2026-11-18T14:23:50.389222+00:00', '{"capacity":2,"facts":{"averages":true,"batch":null,"class":"Facts","doubts":[],"equal_weights":false,"fixed_settings":true,"frozen":"","independent_randomness":true,"public":null,"public_rounds":true,"public_schedule":false,"redrawn_rounds":false,"sample":null,"sampling":{"class":"Sampling","name":"EVERYBODY"},"secret_noise":true,"solved":false,"sources":{"class":"Sources","distances":{"class":"Source","name":"CHECKED"},"identity":{"class":"Source","name":"CHECKED"},"reachable":{"class":"Source","name":"CHECKED"},"server":{"class":"Source","name":"CHECKED"},"training":{"class":"Source","name":"EXECUTED"}},"stages":null,"training":{"class":"LocalTraining","clips_gradients":false,"clips_updates":false,"constant_learning_rate":true,"learning_rate":1.0,"loss":{"class":"SoftmaxL2","l2":0.02,"row_norm":1.0},"momentum":0.0,"optimizer":"sgd","precision":"float64","proximal":0.0,"server_learning_rate":1.0,"server_momentum":0.0,"server_optimizer":"average","steps":3,"untrained_buffers":[],"weight_decay":0.0}},"goal":null,"grid":9.5367431640625e-07,"tensors":[["bias","float64",[3]],["weight","float64",[3,6]]],"update_interval":2}', '\x', '\x37a12019a966d9a8e7d49b6e2d735519cb28c2a890505e02c62d135d2cc2d781', '\xde5b3634e9b2ffce83a71e8655d3edf48c0273c7cfbabe3c5f6c8f1ac91b6d60');
INSERT INTO rescind_frozen_history.journal VALUES (2, 'branch', '2026-11-18T14:23:50.669550+00:00', '{"bare":[],"hidden":[],"model":"e208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37","noise_rounding":0.0,"number":0,"parent":null,"participations":[],"requests":[],"sigma":0.0,"unbounded":false,"unit_roundoff":0.0}', '\x', '\xdc6afe96e653445d1e86d94524db3ec17d36f9b9e0f38621088ccb994d6a5691', '\x6d05df032b513668e901fd07c1b1d107a41cbe8ded97a5f555e09a15f4d39655');
INSERT INTO rescind_frozen_history.journal VALUES (3, 'registration', '2026-11-18T14:23:51.004283+00:00', '{"first":1,"last":6}', '\x3edbe4dd4d0dac1230590d2d5defaa2749c2c6cdc248afab74cf1e9a72592f56', '\x14f79bf4a394221bad55f399444fb49224cb17814f99392006df13235c301357', '\x905733320e34b620fca90fee7bdbd3c718277c2435f391d85fa7869a7dd8f80d');
INSERT INTO rescind_frozen_history.journal VALUES (4, 'round', '2026-11-18T14:23:51.342192+00:00', '{"branch":0,"resumed":true,"round":1}', '\xbf6a60815baa0a176d12b8197235114d4f9592bcd36a78533db98ec06953c9e7', '\x73f709fa15553a80a74171d68afb20ec2b9e79492798903f6d784e714a225021', '\x164c4be55d45967746d6675c47281d60d8384bb71c6f8d3ca37ee1faf8c0832b');
INSERT INTO rescind_frozen_history.journal VALUES (5, 'round', '2026-11-18T14:23:51.898282+00:00', '{"branch":0,"round":2}', '\x1f4cc1af1fea72236c68426da1ce5eb3ac403ddcc12ecf251d34e1fc326e89ad', '\x26f397754d306d483d789f5daa3db0264805465e506534af66663ed4aab476f8', '\xa2fa6c4318ed714bf7d464ff97cb8318e0ba635c444db37761cb4bfbd6417428');
INSERT INTO rescind_frozen_history.journal VALUES (6, 'round', '2026-11-18T14:23:52.285341+00:00', '{"branch":0,"round":3}', '\xb7a445b6437bef6a8a312b75e044e9a74aa18ec8cfb9b452b5f8033016925e66', '\x3df1d94914f1b2b1a1ef5b107e1179c43c1cc0117adce8b60f79bd1062a8cad0', '\x72582cf0fcc10cd017098463a083eb0392193cd956c28601a7ff2d374b7d23fb');
INSERT INTO rescind_frozen_history.journal VALUES (7, 'named', '2026-11-18T14:23:52.389188+00:00', '{"federation":"heart","model":"risk head","operator":"City Hospitals"}', '\x', '\xa61cbed11d13ce91cb949a6b80491048a200d86e76406f79f9897fd11e6cafa8', '\x33a89808c980f574d4bdf78c2b07cd4704526a1e9fce27a7c36b2605bfe847b1');
INSERT INTO rescind_frozen_history.journal VALUES (8, 'label', '2026-11-18T14:23:52.429166+00:00', '{"labels":[[3,"fd1be504718dcab04f4d35c36ee7f63932638d8e7acdeb3bef504002a9080fd6"]]}', '\x', '\xa2c3fd61e8c8e17c3ba820efd81a779c628cd3ca7ba4686de7b4ed0e89612b97', '\x4e92d6182abd47a425de5edc32c0568486c9aea75f72fb6642c46ebc876668bd');
INSERT INTO rescind_frozen_history.journal VALUES (9, 'request', '2026-11-18T14:23:52.481599+00:00', '{"deadline":"2026-12-18T14:23:52.481599+00:00","forgotten":["25eece50231305174b312722d7f26e0c210622789df6ace609ce4b92fa3467c7"],"request":{"budget":{"class":"Budget","delta":1e-05,"epsilon":5.0},"class":"Request","group":{"class":"frozenset","items":[6]},"releases":1,"scope":{"class":"PrivacyScope","name":"GROUP"}},"sender":{"asker":{"class":"Asker","name":"OPERATOR"},"class":"Sender","proof":""}}', '\x', '\x2de85d41d617a38c0dedec824ee2d0cc3593e1dfbaf029f460f8963dc536f2ee', '\x330b9c95b83cce6192e3b5703635db64f49b600adccba6bbb2799feb87c89b14');
INSERT INTO rescind_frozen_history.journal VALUES (10, 'plan', '2026-11-18T14:23:53.151441+00:00', '{"candidate":{"class":"Candidate","declared":[],"mode":{"class":"Mode","name":"INSTANCE"},"node":{"branch":0,"class":"Node","eligible":true,"index":3,"round":3},"obstacles":[],"predicted_rounds":3.0,"rechecked":[],"releases_mu":1.1202311809150587,"sigma":0.5,"solving":null,"weakened":[]},"method":"Last","public_plan":false,"requests":[1],"seen":6}', '\x', '\x71ce9fc5d31576c603515fe9648d170559ba65c1b7f733a0f73db15348d395dc', '\xdedcfbfa6d239915cd16f76f423a29bb5348b45d06d0c2654f0fb6255beeadf1');
INSERT INTO rescind_frozen_history.journal VALUES (11, 'branch', '2026-11-18T14:23:53.289206+00:00', '{"bare":[],"hidden":[1],"model":"f0575e5bea4e77543063c5995b3c18533a576b18e653015185b21ffd1e2bde38","noise_rounding":4.370284744598031e-06,"number":1,"parent":{"branch":0,"class":"ModelId","round":3},"participations":[],"requests":[1],"sigma":0.5,"unbounded":false,"unit_roundoff":1.1102230246251565e-16}', '\x', '\xca48b4528be2183657905b351e38203e2d486bfefdf80b9b83a97eef1c5f91e6', '\x91ad45ab43b0dc2665d1e8ced6ee46e6707ad64bad6497af7a93087576687c33');
INSERT INTO rescind_frozen_history.journal VALUES (12, 'round', '2026-11-18T14:23:53.621766+00:00', '{"branch":1,"resumed":true,"round":1}', '\xa2a9b908b29d12c5f02657bba4836618aa6b827aa40c855675312cc396184f48', '\xbe7ff7990b5abaeaf79d83f16bec84c28fbe355ee9684be352841fd5726dc955', '\x2f07aee9af61f5fbc41e9981bceb8959c7dccfc1b7c163789e6c031842a7cd50');
INSERT INTO rescind_frozen_history.journal VALUES (13, 'round', '2026-11-18T14:23:54.182361+00:00', '{"branch":1,"round":2}', '\x251ce74a45e336082c3682352edfd56bf4942a5d132e6df06fa16c0569e12b51', '\x0f5a4a69892481ba8edefc7e9388a6cdcc9f78691d1c1209f39b477cc19dbc31', '\xf9852c22bec1b8e8d95ead44867b16c021ca50c239956a73bab4ffcad6387e11');
INSERT INTO rescind_frozen_history.journal VALUES (14, 'retrained', '2026-11-18T14:23:54.297079+00:00', '{"branch":1,"model":"6e0f98898f7a2b4156ffb21f1f84cb7d159c6614e57991962ffe15eb19e69e41","rounds":2}', '\x', '\x38eef1c4e791107cd4a106b669cd123a9d342ec136380e65f73e72bf9540f54e', '\x8c3c65d0a907db6ab95ae99e45f1339bbd2a54485936a991d4bf00400027bd9d');
INSERT INTO rescind_frozen_history.journal VALUES (15, 'erasure', '2026-11-18T14:23:54.520313+00:00', '{"abandoned":[],"branch":1,"clients":[6],"keys":[6],"level":{"class":"ErasureLevel","name":"PURGE"},"models":1,"origin":{"branch":0,"class":"ModelId","round":0},"requests":[1],"stays":["one sensitivity of each remaining client, which was measured with the client present","one largest weight of each remaining client, rounded up to a coarse list: with its own count it tells about how many examples all participants of a round had","the pseudonym, in the list of those who once took part, and before which round it first did","keyed digests of the name, by which a returning client is recognised and finds itself in a certificate: whoever holds the run''s secret file too, which lies outside of the ledger, can test guesses of the name","the pseudonym, in the request and in its registration, whose time tells when the client first took part; the restart''s round and noise, in the plan","the roots of erased rounds and of registrations, which commit to numbers and the name under salts that are gone"],"stretch":[{"branch":0,"class":"Span","first":1,"last":3}],"superseded":[],"updates":12}', '\x', '\xe4a900d8befb752b736c924a6630e3b4b2b508b7032eb7bf9a1f93e19c841e2c', '\x4463c30fd8728641a86e34e332bd441864df55b1d7ed1b24e78111c19480e997');
INSERT INTO rescind_frozen_history.journal VALUES (16, 'remains', '2026-11-18T14:23:54.520313+00:00', '{"branch":1,"digest":"859df28fd80f732314a53072ef825f43b2f135f22d79f28f29483cae3f7230fe","erasure":15}', '\x', '\x5fdefeefbc9a2fbb5788923088f2c2fa05f6a9c0213432aaea5576a33246d3a3', '\x6587c43954a42e117ff5f1cce416a3d468392f35493b6f374539f9a2aadb8f96');
INSERT INTO rescind_frozen_history.journal VALUES (17, 'erased', '2026-11-18T14:23:54.520313+00:00', '{"erasure":15,"left":["The server''s write-ahead log (pg_wal) holds erased values until its segments are removed or written over, and wal_recycle keeps old segments as they are until then.","Backups and snapshots of the server, if there are any, hold what they held."],"roots":"eadfe6430a438dff91114b8eb3a0f60e14fcd61f5be41468d6d4271a9137e844","rounds":3,"suppressed":"c504c0454d8b3d3506fd8e145a1e4f590b4258c68c670fbfec92135521fead94"}', '\x', '\x16c166729b36c9da1fc17fa66bc5f72de5e034a0bb29fe4a3e0a33bb88d18d29', '\x2b2fb643eaade1522de32816ccbb88d1a55917f453efb2a2cab13170c0b8be93');
INSERT INTO rescind_frozen_history.kept VALUES (0, 0, '\xe208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37');
INSERT INTO rescind_frozen_history.kept VALUES (1, 1, '\x6dc03cef43235b7d0074d010c99bb75f3ef61b274e5b0945015786b42760d249');
INSERT INTO rescind_frozen_history.kept VALUES (1, 2, '\x6e0f98898f7a2b4156ffb21f1f84cb7d159c6614e57991962ffe15eb19e69e41');
INSERT INTO rescind_frozen_history.participation VALUES (0, 1, 12);
INSERT INTO rescind_frozen_history.participation VALUES (0, 2, 12);
INSERT INTO rescind_frozen_history.participation VALUES (0, 3, 12);
INSERT INTO rescind_frozen_history.participation VALUES (0, 4, 12);
INSERT INTO rescind_frozen_history.participation VALUES (0, 5, 12);
INSERT INTO rescind_frozen_history.participation VALUES (0, 1, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 2, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 3, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 4, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 5, 13);
INSERT INTO rescind_frozen_history.round VALUES (12, 1, 1, 0.9411958146972741, 1.8541866563325142e-09, 0.6047332948583809, '\x6dc03cef43235b7d0074d010c99bb75f3ef61b274e5b0945015786b42760d249', '\x79ce13913a4ccb54a5fb81db5f848e87737564bc88a3b1f9688541b9b4cc95ad', '\x01000000000000000000000000002840a9026e53d3d7ef3f0300000002000000000000000000000000002a40a7e43bea66d8e73f0300000003000000000000000000000000002c4049d865175c2be73f0300000004000000000000000000000000002e40d45524a268c4de3f03000000050000000000000000000000000028402ff9e9819c07df3f03000000', '\x97d0c916d9afef3fce038b435b69dabfc8c15b789ca2d6bfd0fd808f8627983f941210e1337bc4bfce038b435b69dabf3a3d5b5fcbc4e13f57bdfa00048db5bfe88cf8e66360b5bf80d88457601c8c3fc8c15b789ca2d6bf57bdfa00048db5bf434f2a228fc6e03facb12936f8c4c0bf4f9f7df44f5d68bfd0fd808f8627983fe88cf8e66360b5bfacb12936f8c4c0bf487f1cb3f994cd3f77e4b8d5f7b4b1bf941210e1337bc4bf80d88457601c8c3f4f9f7df44f5d68bf77e4b8d5f7b4b1bff89d2b0bc116ce3f');
INSERT INTO rescind_frozen_history.round VALUES (13, 1, 2, 0.9411958146972741, 1.8454024683393647e-09, 0.39433085583061067, '\x6e0f98898f7a2b4156ffb21f1f84cb7d159c6614e57991962ffe15eb19e69e41', '\x297d56111bf86d3727962b1ed062550adfe4c7b222a9d377bbf5dadfbebaa7d8', '\x01000000000000000000000000002840d208d1258665ee3f0300000002000000000000000000000000002a408b4a5c1bb596e73f0300000003000000000000000000000000002c40121f6955364be53f0300000004000000000000000000000000002e404f55be0261a6dc3f030000000500000000000000000000000000284094440de4aaf4de3f03000000', '\x0b05e99f9ddfec3f5bfbd2137c3adabf4226383284d4d3bfa290139caf38a23f96029e15ec16c2bf5bfbd2137c3adabf0a2a361d6a63e13fd0f057f1cc3bafbf0e3af8b00cadb7bf883601e1553c803f4226383284d4d3bfd0f057f1cc3bafbf6e2d4d2ed056dc3f30d89b555beab9bf99d6fd60cced8cbfa290139caf38a23f0e3af8b00cadb7bf30d89b555beab9bfbaa46fd48aa6c93f701dde927a5ab1bf96029e15ec16c2bf883601e1553c803f99d6fd60cced8cbf701dde927a5ab1bf6a483f1d0ff2cd3f');
INSERT INTO rescind_frozen_history.run VALUES (7, 'frozen_history', '\x09cff3ea854c800148e0de4013f23f4775e41538d5eb9b4f1a6ebcf0ba37a0b6', '\x0e36defc90b61d77959c009970d6d0571bdea77fb228b1be2d18a4d502b39771');
INSERT INTO rescind_frozen_history.stretch VALUES (1, 0, 0, true, '\x1c0a47ed349e4cf019f9d469e7292c59bd8479767f83de97aebb897396d48cac', '\x0100000000000000d4d30a708b2de13fcd3b7f669ea0c63f02000000000000008bff8cf8a0a9db3fcd3b7f669ea0c63f03000000000000007a7b38b91ef2da3fadd35a999fe8ca3f0400000000000000a787da6ba7a1d33fadd35a999fe8ca3f050000000000000044b7c465c0e5d13fcd3b7f669ea0c63f0600000000000000000000000000f07f000000000000f03f');
INSERT INTO rescind_frozen_history.suppression VALUES ('cf917ffb76ceaea3533d9199c6a062c99b3820aba1c52466d3b433051f924802', 6);
ALTER TABLE ONLY rescind_frozen_history.bounds
    ADD CONSTRAINT bounds_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY rescind_frozen_history.branch
    ADD CONSTRAINT branch_pkey PRIMARY KEY (number);
ALTER TABLE ONLY rescind_frozen_history.client
    ADD CONSTRAINT client_pkey PRIMARY KEY (pseudonym);
ALTER TABLE ONLY rescind_frozen_history.client_update
    ADD CONSTRAINT client_update_pkey PRIMARY KEY (branch, round, client);
ALTER TABLE ONLY rescind_frozen_history.identity
    ADD CONSTRAINT identity_name_excl EXCLUDE USING hash (name WITH =);
ALTER TABLE ONLY rescind_frozen_history.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (pseudonym);
ALTER TABLE ONLY rescind_frozen_history.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY rescind_frozen_history.kept
    ADD CONSTRAINT kept_pkey PRIMARY KEY (branch, round);
ALTER TABLE ONLY rescind_frozen_history.round
    ADD CONSTRAINT round_branch_round_key UNIQUE (branch, round);
ALTER TABLE ONLY rescind_frozen_history.round
    ADD CONSTRAINT round_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY rescind_frozen_history.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (schema_version);
ALTER TABLE ONLY rescind_frozen_history.stretch
    ADD CONSTRAINT stretch_pkey PRIMARY KEY (branch);
ALTER TABLE ONLY rescind_frozen_history.suppression
    ADD CONSTRAINT suppression_pkey PRIMARY KEY (digest, pseudonym);
CREATE INDEX journal_kind ON rescind_frozen_history.journal USING btree (kind) WHERE (kind <> 'round'::text);
CREATE INDEX participation_client ON rescind_frozen_history.participation USING btree (segment, client);
