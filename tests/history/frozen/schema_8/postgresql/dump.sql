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
CREATE TABLE rescind_frozen_history.client_object (
    client integer NOT NULL,
    digest bytea NOT NULL
);
ALTER TABLE ONLY rescind_frozen_history.client_object ALTER COLUMN client SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client_object ALTER COLUMN digest SET STATISTICS 0;
ALTER TABLE ONLY rescind_frozen_history.client_object ALTER COLUMN digest SET STORAGE EXTERNAL;
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
INSERT INTO rescind_frozen_history.bounds VALUES (17, '\x70f3963c864186535c112f0d4d734659861514e31cfef548ea81928b7081c290', '\x626f756e647320320a90030000000000007b22636f756e7473223a7b226474797065223a22493634222c227368617065223a5b325d2c22646174615f6f666673657473223a5b302c31365d7d2c226c656773223a7b226474797065223a22493634222c227368617065223a5b322c335d2c22646174615f6f666673657473223a5b31362c36345d7d2c22726574656e74696f6e2e636c69656e7473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b36342c3131325d7d2c22726574656e74696f6e2e666972737473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3131322c3136305d7d2c22726574656e74696f6e2e6e6f646573223a7b226474797065223a22493634222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3136302c3138345d7d2c22726574656e74696f6e2e707369223a7b226474797065223a22463634222c227368617065223a5b362c335d2c22646174615f6f666673657473223a5b3138342c3332385d7d2c22747261636b65722e636c69656e7473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3332382c3335325d7d2c22747261636b65722e666c6f6f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3335322c3338345d7d2c22747261636b65722e6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3338342c3431365d7d2c22747261636b65722e6c6f775f6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3431362c3434385d7d2c22747261636b65722e6e6f646573223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3434382c3437325d7d2c22747261636b65722e707369223a7b226474797065223a22463634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3437322c3532305d7d2c22747261636b65722e726f756e6473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3532302c3534345d7d7d20202020200500000000000000030000000000000000000000000000000000000000000000000000000000000001000000000000000100000000000000020000000000000004000000000000000600000000000000010000000000000002000000000000000300000000000000050000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000200000000000000030000000000000000000000000000001939fbed59cada3f98ecfae4b7a7e03f0000000000000000000000000000f07f000000000000f07f0000000000000000d8a61d3c6842e63f68663a7597e5ea3f00000000000000009169e1b2ed48e33f17d1bf34d326e83f0000000000000000331e6e971324e23f0c468b5add5ce63f00000000000000000813bb5584ced93f73325161cf14e03f010000000200000003000000040000000500000006000000000000000000000000000000000000006cc3d23a3d12203ed7883703dde52e3e00000000000000000000000000000000221cf61b7f07afbf211cf61b7f07bfbf00000000000000000000000000000000261cf61b7f07afbf271cf61b7f07bfbf03000000030000000300000003000000030000000100000003e1c67497e5ea3f0e165834d326e83ff0392b5add5ce63f1064b3e4b7a7e03fe2200c61cf14e03f000000000000f07f020000000200000002000000020000000200000000000000');
INSERT INTO rescind_frozen_history.branch VALUES (0, 3);
INSERT INTO rescind_frozen_history.branch VALUES (1, 2);
INSERT INTO rescind_frozen_history.client VALUES (1, '\x23db0b73ba6275219379857fffd7a1033aa2e5d5bca287552806ae4f294d60ad', NULL);
INSERT INTO rescind_frozen_history.client VALUES (2, '\x303fc0699a87603076af3871106d4168d7766caa7b16770f8beb3f622107f3db', NULL);
INSERT INTO rescind_frozen_history.client VALUES (3, '\xc04dbe5bff33e556ab07c992e1fbdf80cf48633cd251ff100e3aa5681633d611', NULL);
INSERT INTO rescind_frozen_history.client VALUES (4, '\x7d84e0a97effeba71a061b6c5143e958820343c0a8f85575b7a79dbd3882c2da', NULL);
INSERT INTO rescind_frozen_history.client VALUES (5, '\x8db9d221a853b016a14fdcc164a2030722d398fcae20ca29b54dacf06f8c0918', NULL);
INSERT INTO rescind_frozen_history.client VALUES (6, NULL, '\x3e598a05f2425f16f9d12725d5c181e0f9795594bfec42370372867aa30e7025');
INSERT INTO rescind_frozen_history.client_object VALUES (1, '\x31406c877a8fcf0beb6b0d452dbba012705425cf3126a8eb2420462d4849ebe2');
INSERT INTO rescind_frozen_history.client_object VALUES (2, '\x5f16ae044dcc92785808a42bb6f1dad972e8736aeeb99a81dcf38ae69d7187b7');
INSERT INTO rescind_frozen_history.client_object VALUES (3, '\xb438f98a096486ccde8017360c33491e1c2a202b83eb71be0f15186c46091d99');
INSERT INTO rescind_frozen_history.client_object VALUES (4, '\x3fee08020b6d71ded4073d5236c06009877b84be62af2bfd1703225dc73de801');
INSERT INTO rescind_frozen_history.client_object VALUES (5, '\xa45b130ba898a63f0d3a64d744a318b9674fe08c43908e2ed1acf2984309f427');
INSERT INTO rescind_frozen_history.identity VALUES (1, 'clinic-0', NULL, '\xd3123ba03840b866bd4307ef210da70f89cacdea88dde8461e2ec27747fefb1a');
INSERT INTO rescind_frozen_history.identity VALUES (2, 'clinic-1', NULL, '\x504e580189c276e153c1bdf49388bedf4430a45ec45e482ea928a5c9f1e0d2ea');
INSERT INTO rescind_frozen_history.identity VALUES (4, 'clinic-3', NULL, '\x5b42a356863d831bcd9839bfe59f03d973e9dc96d2ce677dcc13ee2e076b7cfb');
INSERT INTO rescind_frozen_history.identity VALUES (5, 'clinic-4', NULL, '\x597af1580a8f2bfa982dc3b34a6ccabef852496802d328e11276ee8e5e8f20b2');
INSERT INTO rescind_frozen_history.identity VALUES (3, 'clinic-2', 'Clinic of the North', '\x401bc5f9ff6e064c8be8b3665a54ea8d8acabc22ea995fbadd4297dd7f2ed080');
INSERT INTO rescind_frozen_history.journal VALUES (1, 'run', '2026-11-18T17:51:47.590441+00:00', '{"capacity":2,"facts":{"averages":true,"batch":null,"class":"Facts","doubts":[],"equal_weights":false,"fixed_settings":true,"frozen":"","independent_randomness":true,"public":null,"public_rounds":true,"public_schedule":false,"redrawn_rounds":false,"sample":null,"sampling":{"class":"Sampling","name":"EVERYBODY"},"secret_noise":true,"solved":false,"sources":{"class":"Sources","distances":{"class":"Source","name":"CHECKED"},"identity":{"class":"Source","name":"CHECKED"},"reachable":{"class":"Source","name":"CHECKED"},"server":{"class":"Source","name":"CHECKED"},"training":{"class":"Source","name":"EXECUTED"}},"stages":null,"training":{"class":"LocalTraining","clips_gradients":false,"clips_updates":false,"constant_learning_rate":true,"learning_rate":1.0,"loss":{"class":"SoftmaxL2","l2":0.02,"row_norm":1.0},"momentum":0.0,"optimizer":"sgd","precision":"float64","proximal":0.0,"server_learning_rate":1.0,"server_momentum":0.0,"server_optimizer":"average","steps":3,"untrained_buffers":[],"weight_decay":0.0}},"goal":null,"grid":9.5367431640625e-07,"tensors":[["bias","float64",[3]],["weight","float64",[3,6]]]}', '\x', '\x97069bc824bc2fb512bef3cd50e4369e78dc17e236f005c2b5880edca1f7181e', '\x4e1d7b1eb7dc7fd8a791950dcc96d16c6f81847039e1bb8a5bf4b38503af531c');
INSERT INTO rescind_frozen_history.journal VALUES (2, 'branch', '2026-11-18T17:51:47.629220+00:00', '{"bare":[],"hidden":[],"model":"e208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37","noise_rounding":0.0,"number":0,"parent":null,"participations":[],"requests":[],"sigma":0.0,"unbounded":false,"unit_roundoff":0.0}', '\x', '\x0a00871fc3880cbd5c4a415af5984636aad4c719db93d69e9e778f18b09665f3', '\x18cb6a1b2b023a0b12e4dc0446a1cbf7466476b7f86979f49cd944fc0edfbcdb');
INSERT INTO rescind_frozen_history.journal VALUES (3, 'registration', '2026-11-18T17:51:47.680650+00:00', '{"first":1,"last":6}', '\x4be3769daa2a8a2485a032119603205bdba3cc35feea293cb1e3ee81b74b8671', '\x5585fd63fc7ecc204a39db9ef14b2841f0a8edb061ec13497975993a8ceb5bd8', '\xed5f9e51d82a184652e63674888da0b10eab982f68dd399e7b70669813358837');
INSERT INTO rescind_frozen_history.journal VALUES (4, 'round', '2026-11-18T17:51:47.717837+00:00', '{"branch":0,"resumed":true,"round":1}', '\xfc36cd66d92042b73252ffc211d629fd771c3f54c825c295d9480fb84c3d8feb', '\x11f1661ac86fcb31e6c8e9b4daf02865a1e5945f212a23f9d7a5e94795042fed', '\xd6d4a5f53ca238f895c5117efa9ecec093556a7c82b310988c9744cf2671f6db');
INSERT INTO rescind_frozen_history.journal VALUES (5, 'round', '2026-11-18T17:51:47.757611+00:00', '{"branch":0,"round":2}', '\x87afb7d26a8651aefe11387ed9753d26bb26e8301eaefa1f4e2fd33d5f6b9733', '\xe8ab1292ecf59520777ded7dae80ee3d8b62e8aee9e5b4b3a71d5e53dcbfb788', '\x5be8c20ea178707d857169ee4e1cf53d78bb29aaec39ed263731430261923da4');
INSERT INTO rescind_frozen_history.journal VALUES (6, 'round', '2026-11-18T17:51:47.785644+00:00', '{"branch":0,"round":3}', '\x4da5217b3fc4a46339b7a41e1698f3bb290c596488d21b02d083eb77333c4f9d', '\xb96686e9c2dedfb42b6d744a384acde284aa07a36b25b1d28b1639b0f2672e6e', '\x53ee1bf234b9983afb7c364935e34009d7b5063a16a0288ea73f51716857bf9a');
INSERT INTO rescind_frozen_history.journal VALUES (7, 'named', '2026-11-18T17:51:47.927849+00:00', '{"federation":"heart","model":"risk head","operator":"City Hospitals"}', '\x', '\x2e98f03034756e7fad411a8f8afc34db5cdd85e5a6a3aa96b0889077c2483185', '\xb449f572e38fafe41f0f0b356362222c8f8ee4cc5eab8f78d77be0d7683428da');
INSERT INTO rescind_frozen_history.journal VALUES (8, 'label', '2026-11-18T17:51:47.937233+00:00', '{"labels":[[3,"acc918984cccbd74481c1b689e6c80d90f08bf54c05397e2338dee4de30c1ce2"]]}', '\x', '\x06afd507e2026305f188363fa01b00511be8e29cf3de7567314f59972204dd8f', '\xad9570440ecc7b299f8f15511cc4f82a45798bc39c2ff9a2109e8b7a5223a24e');
INSERT INTO rescind_frozen_history.journal VALUES (9, 'request', '2026-11-18T17:51:47.947034+00:00', '{"deadline":"2026-12-18T17:51:47.947034+00:00","forgotten":["5e579010b8f7c2893d1d9e5743364becf4ce8706b54b9d576ec26b9b7d8c9f8d"],"request":{"budget":{"class":"Budget","delta":1e-05,"epsilon":5.0},"class":"Request","group":{"class":"frozenset","items":[6]},"releases":1,"scope":{"class":"PrivacyScope","name":"GROUP"}},"sender":{"asker":{"class":"Asker","name":"OPERATOR"},"class":"Sender","proof":""}}', '\x', '\x3dd51e785a604cd1decbea17f39df394a68dba39450cfcd48b524f35ae6dd796', '\x3a3944f53c08a133934c4f37b72c71b8eced3f9d8299905b699e3e51cdb0e927');
INSERT INTO rescind_frozen_history.journal VALUES (10, 'plan', '2026-11-18T17:51:48.109075+00:00', '{"candidate":{"class":"Candidate","declared":[],"mode":{"class":"Mode","name":"INSTANCE"},"node":{"branch":0,"class":"Node","eligible":true,"index":3,"round":3},"obstacles":[],"predicted_rounds":3.0,"rechecked":[],"releases_mu":1.1202311809150587,"sigma":0.5,"solving":null,"weakened":[]},"method":"Last","public_plan":false,"requests":[1],"seen":6}', '\x', '\x2f62c62b9ca9f0af3396e8dede6541b747596751829efce7ad4604d09cdfbaf6', '\x025cf62a5fb7e14a9a998e3575f982add5f45be2f9fe5da03eb9b83628ff5bde');
INSERT INTO rescind_frozen_history.journal VALUES (11, 'branch', '2026-11-18T17:51:48.157261+00:00', '{"bare":[],"hidden":[1],"model":"6390ed4264efef7be877e39145c0223eb1e1265821dd1d873274c7a4413516a4","noise_rounding":4.370284744737856e-06,"number":1,"parent":{"branch":0,"class":"ModelId","round":3},"participations":[],"requests":[1],"sigma":0.5,"unbounded":false,"unit_roundoff":1.1102230246251565e-16}', '\x', '\x6c04c7bf450ebd3170efca28e08868a4945d19b4147635d1442d2879800a8ee4', '\x41c85d53de0c2e40909c2a5bc212eaea85e849a79aed65c5ab4003557bb61adc');
INSERT INTO rescind_frozen_history.journal VALUES (12, 'round', '2026-11-18T17:51:48.222013+00:00', '{"branch":1,"resumed":true,"round":1}', '\x4dcde29297a25a326d98e2da92ace62a5a2a156b8c054aa3d2b5c79a246d48d8', '\xe559b8eb0f604441dc920d4492510dddf55060193c8377abbf59e53b49adb8c1', '\xe32a5a305298593bc4b7a07bf3ed5f33fd2f1151b6b2b27929a01ffcb801a2b4');
INSERT INTO rescind_frozen_history.journal VALUES (13, 'round', '2026-11-18T17:51:48.269989+00:00', '{"branch":1,"round":2}', '\xed568fc1e4f4e692c4e8df224dd49f67a2e22ba29a85686ae83fa97143693c89', '\x6fdae69443457bceea103ecac1d45dc33a14ea977c4afa21ef9a0e5dd1957dc5', '\xc69847f6ebe3f75c3209ca78d1febe74c369aaebb3fabfd44d143e9f4b8616fd');
INSERT INTO rescind_frozen_history.journal VALUES (14, 'retrained', '2026-11-18T17:51:48.297261+00:00', '{"branch":1,"model":"77a9bb248fc79652c388c5c2bee6bbcb831575805de09dde36ea7c910cff6fae","rounds":2}', '\x', '\x01c863cab86765976001803bdb9e9f7ef6d34c8b60c76e6e9cd7e3cdf7c16021', '\xd7f33475418a275f692beab6f13439e85fc1c8b15c5e6d9a1cd2d3c9e6ea8fbb');
INSERT INTO rescind_frozen_history.journal VALUES (15, 'erasure', '2026-11-18T17:51:48.366193+00:00', '{"abandoned":[],"branch":1,"clients":[6],"keys":[6],"level":{"class":"ErasureLevel","name":"PURGE"},"models":1,"origin":{"branch":0,"class":"ModelId","round":0},"requests":[1],"stays":["one sensitivity of each remaining client, which was measured with the client present","one largest weight of each remaining client, rounded up to a coarse list: with its own count it tells about how many examples all participants of a round had","the pseudonym, in the list of those who once took part, and before which round it first did","keyed digests of the name, by which a returning client is recognised and finds itself in a certificate: whoever holds the run''s secret file too, which lies outside of the ledger, can test guesses of the name","the pseudonym, in the request and in its registration, whose time tells when the client first took part; the restart''s round and noise, in the plan","the roots of erased rounds and of registrations, which commit to numbers and the name under salts that are gone"],"stretch":[{"branch":0,"class":"Span","first":1,"last":3}],"superseded":[],"updates":1}', '\x', '\x174b3a81025d8a9cc606929c2fa3adc1f0c5d5a279ca314d6a6779ecc6be51cb', '\x6338d643e4bd85f4157e5f691c5c0f4588924ceecff1fac8b94f82b3cbad00e4');
INSERT INTO rescind_frozen_history.journal VALUES (16, 'remains', '2026-11-18T17:51:48.366193+00:00', '{"branch":1,"digest":"016dd5957ca12a9d6e191d0ec9db26cdcaa4cf690dac96c92a8b9c6a7ddf9f1e","erasure":15}', '\x', '\x82ea85e1cdbefa4ae1d8a41ae08c94a450784fa840df44bc08d737c4312aef49', '\xfde43432cf21d8706fa1f9fb2c5c57357b79495e53ac104f7c97015fe5756cf4');
INSERT INTO rescind_frozen_history.journal VALUES (17, 'erased', '2026-11-18T17:51:48.366193+00:00', '{"erasure":15,"left":["The server''s write-ahead log (pg_wal) holds erased values until its segments are removed or written over, and wal_recycle keeps old segments as they are until then.","Backups and snapshots of the server, if there are any, hold what they held."],"roots":"b5172010289d6e2a2eb277db76de69379397fe544599fbbf40fd1ef3e2606fee","rounds":3,"suppressed":"61699191164b4c931157c50604b5080d0b63a76eb915981d2885cb8c3e72cc5e"}', '\x', '\x16b2af1eb59d8a55948cd0e3abf018259e596ea1ec1c01738c5a7c57859c569e', '\x85e2d4c783742dbe1ec7c616ad560425ff12ac6de3739211d217e167ccbf804d');
INSERT INTO rescind_frozen_history.kept VALUES (0, 0, '\xe208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37');
INSERT INTO rescind_frozen_history.kept VALUES (1, 1, '\x6d78a3b723439d3ddf2b1ce1ad033592e06346cb7f2f974f4d19aff0af427f7e');
INSERT INTO rescind_frozen_history.kept VALUES (1, 2, '\x77a9bb248fc79652c388c5c2bee6bbcb831575805de09dde36ea7c910cff6fae');
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
INSERT INTO rescind_frozen_history.round VALUES (12, 1, 1, 0.9411958146972741, 1.8709393674827157e-09, 0.7110035576969854, '\x6d78a3b723439d3ddf2b1ce1ad033592e06346cb7f2f974f4d19aff0af427f7e', '\xfa376ce8e4f2621004ddec7e705d4c5850e10d8cc2eeb924e31c9771cd0c2545', '\x01000000000000000000000000002840b38e56e38d69eb3f0300000002000000000000000000000000002a40e09dada0b98ce93f0300000003000000000000000000000000002c4098712107f647e43f0300000004000000000000000000000000002e40314ef78ff843dc3f0300000005000000000000000000000000002840a9a7594fee29e43f03000000', '\xa01a3b9d7b7be73f35cb496000f8d7bf97b8626726bbd0bf00a3e4983ed4b13fed693fa5cb33bcbf35cb496000f8d7bfdf0282e74c66e43f69c9bfc2ba35babffca550ca81aabebff3e8f5148f05a8bf97b8626726bbd0bf69c9bfc2ba35babf26001ab82ab5d93fc1378bb2e996a2bf23390fb6a210aabf00a3e4983ed4b13ffca550ca81aabebfc1378bb2e996a2bf885e565c83f7c83f80f789b32317c2bfed693fa5cb33bcbff3e8f5148f05a8bf23390fb6a210aabf80f789b32317c2bfe74894a94169d93f');
INSERT INTO rescind_frozen_history.round VALUES (13, 1, 2, 0.9411958146972741, 1.836069093117403e-09, 0.45706195672431593, '\x77a9bb248fc79652c388c5c2bee6bbcb831575805de09dde36ea7c910cff6fae', '\x01fc7569bd7f753dbe0cddfb66cf49889fd8a7b1914e83a9cf03a703ada126e8', '\x01000000000000000000000000002840d91187623cc2ea3f0300000002000000000000000000000000002a4070835a0d0177e83f0300000003000000000000000000000000002c4025bf53c2b1a4e33f0300000004000000000000000000000000002e400afd33011c86db3f030000000500000000000000000000000000284073b77a2a16b7e13f03000000', '\x7415b81c3d60e63ff92840c9ccf3d6bfe6cabfcea62ecfbffe47838547f3a63f631b5df9f821b5bff92840c9ccf3d6bf431fdb233cb4e23f6728d4bf3ecab5bf3acf7102819bbabf0825c9dd0139a7bfe6cabfcea62ecfbf6728d4bf3ecab5bf897f4d71c51dd83f52a07d8f1e6faabffefdd568291aa4bffe47838547f3a63f3acf7102819bbabf52a07d8f1e6faabf9950aa4c81acc73fb579116c496ababf631b5df9f821b5bf0825c9dd0139a7bffefdd568291aa4bfb579116c496ababf47326f253e9dd33f');
INSERT INTO rescind_frozen_history.run VALUES (8, 'frozen_history', '\x52f4e47b4068909f97d4c4727565388b44a63c1b43f231ef2f72fa54bb134f60', '\x1eb1f33ab3dc9000901118bc8c28e1dbfd48eafadcbe88fd97541d6239da867c');
INSERT INTO rescind_frozen_history.stretch VALUES (1, 0, 0, true, '\x86b5a2cc0cc8d638dd89def9f238204f86a8c755b36e33269dfb3c91ca12acd0', '\x0100000000000000d5d30a708b2de13fcd3b7f669ea0c63f02000000000000008eff8cf8a0a9db3fcd3b7f669ea0c63f03000000000000007d7b38b91ef2da3fadd35a999fe8ca3f0400000000000000aa87da6ba7a1d33fadd35a999fe8ca3f050000000000000047b7c465c0e5d13fcd3b7f669ea0c63f0600000000000000000000000000f07f000000000000f03f');
INSERT INTO rescind_frozen_history.suppression VALUES ('3ed653ececdeeb385167b3c15ebbf575e65d2af6f2a1d065c2558bee9e6c883b', 6);
ALTER TABLE ONLY rescind_frozen_history.bounds
    ADD CONSTRAINT bounds_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY rescind_frozen_history.branch
    ADD CONSTRAINT branch_pkey PRIMARY KEY (number);
ALTER TABLE ONLY rescind_frozen_history.client_object
    ADD CONSTRAINT client_object_pkey PRIMARY KEY (client);
ALTER TABLE ONLY rescind_frozen_history.client
    ADD CONSTRAINT client_pkey PRIMARY KEY (pseudonym);
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
