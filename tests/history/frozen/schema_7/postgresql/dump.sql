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
INSERT INTO rescind_frozen_history.bounds VALUES (17, '\xb0d6d3dc869ff828ddad7026c496905e721c6d6dfa22e938f247e9dcfa393d73', '\x626f756e647320310a90030000000000007b22636f756e7473223a7b226474797065223a22493634222c227368617065223a5b335d2c22646174615f6f666673657473223a5b302c32345d7d2c226c656773223a7b226474797065223a22493634222c227368617065223a5b322c335d2c22646174615f6f666673657473223a5b32342c37325d7d2c22726574656e74696f6e2e636c69656e7473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b37322c3132305d7d2c22726574656e74696f6e2e666972737473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3132302c3136385d7d2c22726574656e74696f6e2e6e6f646573223a7b226474797065223a22493634222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3136382c3139325d7d2c22726574656e74696f6e2e707369223a7b226474797065223a22463634222c227368617065223a5b362c335d2c22646174615f6f666673657473223a5b3139322c3333365d7d2c22747261636b65722e636c69656e7473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3333362c3336305d7d2c22747261636b65722e666c6f6f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3336302c3339325d7d2c22747261636b65722e6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3339322c3432345d7d2c22747261636b65722e6c6f775f6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3432342c3435365d7d2c22747261636b65722e6e6f646573223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3435362c3438305d7d2c22747261636b65722e707369223a7b226474797065223a22463634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3438302c3532385d7d2c22747261636b65722e726f756e6473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3532382c3535325d7d7d2020202020000000000000000005000000000000000300000000000000000000000000000000000000000000000000000000000000010000000000000001000000000000000200000000000000040000000000000006000000000000000100000000000000020000000000000003000000000000000500000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002000000000000000300000000000000000000000000000067f5ff4b1f78db3fadaa33cc5710e13f0000000000000000000000000000f07f000000000000f07f0000000000000000aa1fb8fa1380e73fae951082111ced3f000000000000000077d2ee349736e33f5b66280c0d43e83f00000000000000002eedacac7fe8e23f2a00d1d6f078e73f0000000000000000a52c3a6a3b01d83f1cd1386130b9dd3f010000000200000003000000040000000500000006000000000000000000000000000000000000003d8b60ad5d4c203ebeb788e3a7652f3e00000000000000000000000000000000221cf61b7f07afbf211cf61b7f07bfbf00000000000000000000000000000000261cf61b7f07afbf271cf61b7f07bfbf030000000300000003000000030000000300000001000000498f9381111ced3f1832c00b0d43e83ff52f6cd6f078e73fc960eacb5710e13fe427b96030b9dd3f000000000000f07f020000000200000002000000020000000200000000000000');
INSERT INTO rescind_frozen_history.branch VALUES (0, 3);
INSERT INTO rescind_frozen_history.branch VALUES (1, 2);
INSERT INTO rescind_frozen_history.client VALUES (1, '\x84ae21144506d4c3764cbae4bdfa1450de5dac2f1c97a4bb7439cb7b3c1a68f9', NULL);
INSERT INTO rescind_frozen_history.client VALUES (2, '\x4c828ae920c9bfe59014110942163f7ffb80fcc08cbe0811ffcfa9ab372f9b33', NULL);
INSERT INTO rescind_frozen_history.client VALUES (3, '\x3870c89be552c97a4acc8408d79533b9386b22d283e6c48cfd9438c20194e676', NULL);
INSERT INTO rescind_frozen_history.client VALUES (4, '\x0ada5b3fc69eb63f1ec37772ab182452b75877b8efdc8ca6eba74bcf19037a39', NULL);
INSERT INTO rescind_frozen_history.client VALUES (5, '\x33437553efd15f480cc416dab9b19b265bd64f77ab745f7fd77c31b954d5dffd', NULL);
INSERT INTO rescind_frozen_history.client VALUES (6, NULL, '\xbf29b2577134614c6ce6f0fe52130c3aacff6b1d8a4d5b139d7955368e6fd772');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 1, '\x7ea42c24de2798d2d934e9fd9548c8769148a3c1b44a41caa9a6a94cbc20bb91');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 2, '\x2f6828cc7a21e741fb7bbf84f9e1175ea1df0df8d33d84ccf37ed8c381c42fbc');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 3, '\x62019163289146797cfd6e4ee28c98ae19bb1ee6f0753ede52b29021699c017c');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 4, '\xccf444d455727ddecb3562cdc784c5bf521d62ac7a0a389c074e1c9b73b9ba25');
INSERT INTO rescind_frozen_history.client_update VALUES (1, 1, 5, '\x9988cf0b3cd1561869ffe70ebce7dc560b459e40d1e16c6ed2e1024b1d346506');
INSERT INTO rescind_frozen_history.identity VALUES (1, 'clinic-0', NULL, '\x4a9e73c255faf22a41a78c7ebfd31d6dc10581a78f1c654b228a80e64647f02a');
INSERT INTO rescind_frozen_history.identity VALUES (2, 'clinic-1', NULL, '\xef48decd10819e2fa23c913974b3a80cec7f4c2d263c9d739c1647dd1c65bc07');
INSERT INTO rescind_frozen_history.identity VALUES (4, 'clinic-3', NULL, '\x140462427aa0fdcecf68efaf8552340fca3da8026ad2a20b0672984ff59706a2');
INSERT INTO rescind_frozen_history.identity VALUES (5, 'clinic-4', NULL, '\xec39a2021d6d797132c24db7a84a8482a83d1c91211ba9580e6b911ea9734cb0');
INSERT INTO rescind_frozen_history.identity VALUES (3, 'clinic-2', 'Clinic of the North', '\x555fda4c32abc101837346aaa8b01470472750323afe6f81fd532b9bc997343e');
INSERT INTO rescind_frozen_history.journal VALUES (1, 'run', '2026-11-18T01:35:33.039820+00:00', '{"capacity":2,"facts":{"averages":true,"batch":null,"class":"Facts","doubts":[],"equal_weights":false,"frozen":"","independent_randomness":true,"public":null,"public_rounds":true,"public_schedule":false,"redrawn_rounds":false,"sample":null,"sampling":{"class":"Sampling","name":"EVERYBODY"},"secret_noise":true,"solved":false,"sources":{"class":"Sources","distances":{"class":"Source","name":"CHECKED"},"identity":{"class":"Source","name":"CHECKED"},"reachable":{"class":"Source","name":"CHECKED"},"training":{"class":"Source","name":"EXECUTED"}},"stages":null,"training":{"class":"LocalTraining","clips_gradients":false,"clips_updates":false,"constant_learning_rate":true,"learning_rate":1.0,"loss":{"class":"SoftmaxL2","l2":0.02,"row_norm":1.0},"momentum":0.0,"optimizer":"sgd","precision":"float64","proximal":0.0,"server_learning_rate":1.0,"server_momentum":0.0,"server_optimizer":"average","steps":3,"untrained_buffers":[],"weight_decay":0.0}},"goal":null,"grid":9.5367431640625e-07,"tensors":[["bias","float64",[3]],["weight","float64",[3,6]]],"update_interval":2}', '\x', '\x0d755c463a86cac88a0e642522051970cf9bab5d01bc4b314689dcf3b70ae194', '\x7ad23820e8df95af7923cff4ed524fd0e96714d547a05293eacd3d6644fb2587');
INSERT INTO rescind_frozen_history.journal VALUES (2, 'branch', '2026-11-18T01:35:33.275313+00:00', '{"bare":[],"hidden":[],"model":"e208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37","noise_rounding":0.0,"number":0,"parent":null,"participations":[],"requests":[],"sigma":0.0,"unbounded":false,"unit_roundoff":0.0}', '\x', '\x8b9a0c62855b70a589bb8a79d2bc41161f6a1f7893be25196fbe0cbac26de550', '\x5042a83e71d50c080b93ca69287ccfbe7ff57fd43a10d59e321f27074a3fa54c');
INSERT INTO rescind_frozen_history.journal VALUES (3, 'registration', '2026-11-18T01:35:33.749148+00:00', '{"first":1,"last":6}', '\x59d3c79e489af3199799016b97ac20c35e429ab6cea881604be97d8f4045192f', '\x6e5cfee393aa3a9fd218b35299f1fee8204a146e14e95e8a177b3a9c04ee0083', '\x4bbfcdaa0992e94d4c00a38cd0d47c0ca4739ecc5e9c801e167de94fe946ceee');
INSERT INTO rescind_frozen_history.journal VALUES (4, 'round', '2026-11-18T01:35:34.011458+00:00', '{"branch":0,"resumed":true,"round":1}', '\xd27979d2ba7da22584318897dc33918c341703a318bf62731e6830c79fefabf1', '\xd0999f4ecc34dabc27cb528276031c9e5309ec022a8540f9dd9be932e261209c', '\x330ffa6783ed40c87b7f823c5f46e83723a2e6e4e77c270bfc39e3433964f3a7');
INSERT INTO rescind_frozen_history.journal VALUES (5, 'round', '2026-11-18T01:35:34.275647+00:00', '{"branch":0,"round":2}', '\x0e6e45b392640f7cee1b04f8e864d429de9672adc7e25e4c07d0d045c2b69e77', '\xa046fb10a4a9b50a8bf86d9d0a0e2cde156c889475526a1117abe0209296251c', '\xe1f2c1508c2fc05c894783f6c897b3dd172e600248c261081020ecf3568d8d16');
INSERT INTO rescind_frozen_history.journal VALUES (6, 'round', '2026-11-18T01:35:34.535753+00:00', '{"branch":0,"round":3}', '\x3f362e01f0e0410b729bb4e9149006318db9b69c9a6efebfecd35edce8e243ae', '\x51923822c2948856d1e74fe93701850fd977b76243479fe50acfca8579010e86', '\xb5f2052f040163866bc6df91095fe9da04c07154697b1c6e72e7756be95c2b8c');
INSERT INTO rescind_frozen_history.journal VALUES (7, 'named', '2026-11-18T01:35:34.727700+00:00', '{"federation":"heart","model":"risk head","operator":"City Hospitals"}', '\x', '\x4d58914f7acc5936c51dc0cb50ece4c7f9b616d7285b9b7b449622f582cf17f0', '\xeaf48a09397561f50f12ccf305a129208e1b5a3d4e0393f60347588e5e266f36');
INSERT INTO rescind_frozen_history.journal VALUES (8, 'label', '2026-11-18T01:35:34.770926+00:00', '{"labels":[[3,"aa64780b21f731bd059f76685b05e1f013113f2776247c12d87a73e472521922"]]}', '\x', '\x6841bd47ffee2fee5f9fff819e69deb9fd19fee74feb65a90068ccc20a61313b', '\x0ea8ff23d15e14c525059ba58931fe73d51360d0cac88f4412f80e570de11596');
INSERT INTO rescind_frozen_history.journal VALUES (9, 'request', '2026-11-18T01:35:34.836925+00:00', '{"deadline":"2026-12-18T01:35:34.836925+00:00","forgotten":["093ebbf0e9c001c52c8b496da374f5de7e9b37271a1040bca46ab0dcf4fea900"],"request":{"budget":{"class":"Budget","delta":1e-05,"epsilon":5.0},"class":"Request","group":{"class":"frozenset","items":[6]},"releases":1,"scope":{"class":"PrivacyScope","name":"GROUP"}},"sender":{"asker":{"class":"Asker","name":"OPERATOR"},"class":"Sender","proof":""}}', '\x', '\xaf46e1924d7d1c06644c117124d430055ae34d63f563672752c4660a6d3cf77a', '\xf93cede7af9c04001e42d371f6e6111dc6c9cc75060431aad0b9f746a18b690f');
INSERT INTO rescind_frozen_history.journal VALUES (10, 'plan', '2026-11-18T01:35:36.424024+00:00', '{"candidate":{"class":"Candidate","declared":[],"mode":{"class":"Mode","name":"INSTANCE"},"node":{"branch":0,"class":"Node","eligible":true,"index":3,"round":3},"obstacles":[],"predicted_rounds":3.0,"rechecked":[],"releases_mu":1.1202311809150587,"sigma":0.5,"solving":null,"weakened":[]},"method":"Last","public_plan":false,"requests":[1],"seen":6}', '\x', '\xff9144c46633223e2d36e723ddb4e0b40eb75a859031c9c24be453af2c3f9528', '\xfca4d884c6b0f149b7850921aa68bc5ea4884563db494a0af15db84d8951da81');
INSERT INTO rescind_frozen_history.journal VALUES (11, 'branch', '2026-11-18T01:35:36.711271+00:00', '{"bare":[],"hidden":[1],"model":"6856e34d5a640517d905138d7370b1ed87869e0fbe1d3406b03bfe1fa57eb74b","noise_rounding":4.370284744672579e-06,"number":1,"parent":{"branch":0,"class":"ModelId","round":3},"participations":[],"requests":[1],"sigma":0.5,"unbounded":false,"unit_roundoff":1.1102230246251565e-16}', '\x', '\x96a8a2c9cfdf39b657eb282a9c1d1b8dfc4834dc9d84844d9bc9016149ae52cc', '\x57c1f86ff9d4f42d27a2df45b968cb815646808d43d1ae3d33242eb8e67a9c1c');
INSERT INTO rescind_frozen_history.journal VALUES (12, 'round', '2026-11-18T01:35:37.327962+00:00', '{"branch":1,"resumed":true,"round":1}', '\x693a9f418f75054bdf4ed401b6a9e6891250cb844ff37c6166b8d2126c104e3b', '\x0ac5c3770d6eda1f341d7ae7818889f35d071f2824bcc2a41d2b2807d9cfa768', '\xf3eba7b6221f4eceee30018e599297eb7e98fbb09f4b13e57e2ff1729547274a');
INSERT INTO rescind_frozen_history.journal VALUES (13, 'round', '2026-11-18T01:35:37.559757+00:00', '{"branch":1,"round":2}', '\x9aed1bd5094b2795ee95fcebf289270ddd45db4761f235044c88f713dc32a29f', '\x3960cbbbb79b0cfc6ec1c9c42c096897bb21f2796cc68cc407846e21bd0b19d6', '\x303a341bb5ff94c547bff7288365f02bee2aa9208ba79a36a08729bf297eecd6');
INSERT INTO rescind_frozen_history.journal VALUES (14, 'retrained', '2026-11-18T01:35:37.682843+00:00', '{"branch":1,"model":"c20d48f47cecf3ea45503b63f37a4500c3dd9e0296722ca9ba747b4f5bd8b02b","rounds":2}', '\x', '\xd78f7892b59b0cf89d73bd01c87ecda86a56372fc4e791dcd81bf206f6d0b04a', '\x92563fea485e76896228e3e3874988b5d784f5faf34e0476320e8f77bb2242a6');
INSERT INTO rescind_frozen_history.journal VALUES (15, 'erasure', '2026-11-18T01:35:38.100220+00:00', '{"abandoned":[],"branch":1,"clients":[6],"keys":[6],"level":{"class":"ErasureLevel","name":"PURGE"},"models":1,"origin":{"branch":0,"class":"ModelId","round":0},"requests":[1],"stays":["one sensitivity of each remaining client, which was measured with the client present","one largest weight of each remaining client, rounded up to a coarse list: with its own count it tells about how many examples all participants of a round had","the pseudonym, in the list of those who once took part, and before which round it first did","keyed digests of the name, by which a returning client is recognised and finds itself in a certificate: whoever holds the run''s secret file too, which lies outside of the ledger, can test guesses of the name","the pseudonym, in the request and in its registration, whose time tells when the client first took part; the restart''s round and noise, in the plan","the roots of erased rounds and of registrations, which commit to numbers and the name under salts that are gone"],"stretch":[{"branch":0,"class":"Span","first":1,"last":3}],"superseded":[],"updates":12}', '\x', '\x10e69353c773a0e9f509078945e0cd6eaf858e3cc078870de4507495e69adb8d', '\xabc5fcb5cfa6a631f7ee0873c1f5cf3482efeff6db07d8dd0ebf1e52f948a8a0');
INSERT INTO rescind_frozen_history.journal VALUES (16, 'remains', '2026-11-18T01:35:38.100220+00:00', '{"branch":1,"digest":"713b5c639a8df9e216decd7c07ae3fb8e0ea267037d7ffcf15834fab8e8fcba1","erasure":15}', '\x', '\x84877113962b78f21f2cb53ba91152597bdf7601b7008a5715192eca20c431bd', '\x8420f8c3e4506fd8c0fd4ce7abeb2dee6d6504ab095ac3d84604aa840b9faef7');
INSERT INTO rescind_frozen_history.journal VALUES (17, 'erased', '2026-11-18T01:35:38.100220+00:00', '{"erasure":15,"left":["The server''s write-ahead log (pg_wal) holds erased values until its segments are removed or written over, and wal_recycle keeps old segments as they are until then.","Backups and snapshots of the server, if there are any, hold what they held."],"roots":"7f4e36d2e1f9bc6bbcda87ca0e3aee96ac8851a30ebd93ad2b43df9f3fab2984","rounds":3,"suppressed":"88d48b911bbf17502d0023b0ac92a700b072fb8f5c73a4ca5a12019f40f8416c"}', '\x', '\xd572bc66f89337bfd2677a07bc68e78c52393e7bb973e20504013d08565ba822', '\x7522466937ff6382fb6ce3b39d35d97c6a30b123258f26344d0f7906feee9f36');
INSERT INTO rescind_frozen_history.kept VALUES (0, 0, '\xe208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37');
INSERT INTO rescind_frozen_history.kept VALUES (1, 1, '\x65b6ee6314e68769958ad2c24a5e0dc677ae78405051c6256396ac530b571531');
INSERT INTO rescind_frozen_history.kept VALUES (1, 2, '\xc20d48f47cecf3ea45503b63f37a4500c3dd9e0296722ca9ba747b4f5bd8b02b');
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
INSERT INTO rescind_frozen_history.round VALUES (12, 1, 1, 0.9411958146972741, 1.8973723521298655e-09, 0.7872100844920825, '\x65b6ee6314e68769958ad2c24a5e0dc677ae78405051c6256396ac530b571531', '\x66e2967d7e8ce92399203b0478c3c7a69e08843e4c401ca1ccb87ce4d8820df5', '\x01000000000000000000000000002840c6ac725e897ff03f0300000002000000000000000000000000002a40d844748bf641e93f0300000003000000000000000000000000002c40d348837a8721e73f0300000004000000000000000000000000002e40df637ecfca92de3f0300000005000000000000000000000000002840dfb1783d0a1ce03f03000000', '\xa9193c560b03f13ff09be1cc3083ddbfe68e7f266cf5d5bfea7d19628abeb3bf8ebcfc921126b1bff09be1cc3083ddbf71b6e73299efe33fe779ac6567a7babf40a4a94ad58c9abf1b32bc248dabaebfe68e7f266cf5d5bfe779ac6567a7babf07fbc6e155b8e03f58212d8a73d2b8bfe68274b70ba2a0bfea7d19628abeb3bf40a4a94ad58c9abf58212d8a73d2b8bf8bbdb7a4dd35cd3f988b44d4c921b1bf8ebcfc921126b1bf1b32bc248dabaebfe68274b70ba2a0bf988b44d4c921b1bffd17cf9e4538d03f');
INSERT INTO rescind_frozen_history.round VALUES (13, 1, 2, 0.9411958146972741, 1.869303772754398e-09, 0.38149347241991505, '\xc20d48f47cecf3ea45503b63f37a4500c3dd9e0296722ca9ba747b4f5bd8b02b', '\x6f2ca3d7ac96e9e901febc1104d6e951f1c71897c345dd21b663bb7a067a848b', '\x01000000000000000000000000002840cde2cb8dec75ef3f0300000002000000000000000000000000002a4027c346e07130e93f0300000003000000000000000000000000002c40f778a4ef2a15e53f0300000004000000000000000000000000002e40271aea717a21dc3f03000000050000000000000000000000000028402588709af90ae03f03000000', '\x63985ce32ceeee3fdff8e4a3e510dcbf6368cc5996ead3bf5ec470cfae6592bf2ffd2166aa21bbbfdff8e4a3e510dcbf5aa3a445fbd3e33f130218ceb30fb7bf873f5b555ab1b4bfd9016ec3a13b9bbf6368cc5996ead3bf130218ceb30fb7bf7b0538b6acc7db3f7017f0d8525eadbf315e3911588b9abf5ec470cfae6592bf873f5b555ab1b4bf7017f0d8525eadbfe226b94db9bac83f3a676eb3e6acb1bf2ffd2166aa21bbbfd9016ec3a13b9bbf315e3911588b9abf3a676eb3e6acb1bfc1f917bcfa15d03f');
INSERT INTO rescind_frozen_history.run VALUES (7, 'frozen_history', '\xe7e3e9b9a7562b5d23ed955d60b6edf91741cf415e884f34a079dcf789dcdace', '\x0dfa5388a2dfa94919290eaf998b15e11c55b1bd54e5850be30da55d1d5de571');
INSERT INTO rescind_frozen_history.stretch VALUES (1, 0, 0, true, '\x0ef2ee15c3a7b6ab6885d494f90577edd94d338114147c2614a43ec7515683c3', '\x0100000000000000d4d30a708b2de13fcd3b7f669ea0c63f02000000000000008dff8cf8a0a9db3fcd3b7f669ea0c63f03000000000000007c7b38b91ef2da3fadd35a999fe8ca3f0400000000000000a987da6ba7a1d33fadd35a999fe8ca3f050000000000000046b7c465c0e5d13fcd3b7f669ea0c63f0600000000000000000000000000f07f000000000000f03f');
INSERT INTO rescind_frozen_history.suppression VALUES ('4922ac2c67b5e234f2def76599595cf1b05b396b0d23ec09e642074b8df245d2', 6);
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
