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
INSERT INTO rescind_frozen_history.bounds VALUES (18, '\xec749dcc1e8650b6a102bc4ca6742047f2e738340d2c2dd1f6874c57cfa3f8db', '\x626f756e647320320a90030000000000007b22636f756e7473223a7b226474797065223a22493634222c227368617065223a5b325d2c22646174615f6f666673657473223a5b302c31365d7d2c226c656773223a7b226474797065223a22493634222c227368617065223a5b322c335d2c22646174615f6f666673657473223a5b31362c36345d7d2c22726574656e74696f6e2e636c69656e7473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b36342c3131325d7d2c22726574656e74696f6e2e666972737473223a7b226474797065223a22493634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3131322c3136305d7d2c22726574656e74696f6e2e6e6f646573223a7b226474797065223a22493634222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3136302c3138345d7d2c22726574656e74696f6e2e707369223a7b226474797065223a22463634222c227368617065223a5b362c335d2c22646174615f6f666673657473223a5b3138342c3332385d7d2c22747261636b65722e636c69656e7473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3332382c3335325d7d2c22747261636b65722e666c6f6f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3335322c3338345d7d2c22747261636b65722e6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3338342c3431365d7d2c22747261636b65722e6c6f775f6c6f675f666163746f7273223a7b226474797065223a22463634222c227368617065223a5b345d2c22646174615f6f666673657473223a5b3431362c3434385d7d2c22747261636b65722e6e6f646573223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3434382c3437325d7d2c22747261636b65722e707369223a7b226474797065223a22463634222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3437322c3532305d7d2c22747261636b65722e726f756e6473223a7b226474797065223a22493332222c227368617065223a5b365d2c22646174615f6f666673657473223a5b3532302c3534345d7d7d202020202005000000000000000300000000000000000000000000000000000000000000000000000000000000010000000000000001000000000000000200000000000000040000000000000006000000000000000100000000000000020000000000000003000000000000000500000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002000000000000000300000000000000000000000000000089c54a58d6ceda3fb63e34fe1face03f0000000000000000000000000000f07f000000000000f07f0000000000000000d5a2aee5e7e2e53f8b95d0926b5cea3f00000000000000007e0e54167003e33f01e1e424d3c6e73f000000000000000078f013ba603de23fb7198a68e39ee63f00000000000000002deb21cfe9c9d83f98864f47908ede3f010000000200000003000000040000000500000006000000000000000000000000000000000000001c34671825f5203ef6699284375f303e00000000000000000000000000000000221cf61b7f07afbf211cf61b7f07bfbf00000000000000000000000000000000261cf61b7f07afbf271cf61b7f07bfbf0300000003000000030000000300000003000000010000004c5d5f926b5cea3f4ac27e24d3c6e73f09f22868e39ee63f41a3ecfd1face03ff048cc46908ede3f000000000000f07f020000000200000002000000020000000200000000000000');
INSERT INTO rescind_frozen_history.branch VALUES (0, 3);
INSERT INTO rescind_frozen_history.branch VALUES (1, 2);
INSERT INTO rescind_frozen_history.client VALUES (1, '\x45b043d795b3a028fbe92f7ad9ece935103301ac0b188d5164c2301bb1778878', NULL);
INSERT INTO rescind_frozen_history.client VALUES (2, '\x9d01732bafe1b6ea587f2a2e464cdfc956537d07effee0db1a2bb524b23cfe40', NULL);
INSERT INTO rescind_frozen_history.client VALUES (3, '\xa32187d754f4d9f563d075c5ac63d3bb07112f1575fe24502fcff3d64975afdb', NULL);
INSERT INTO rescind_frozen_history.client VALUES (4, '\x40a825822cf878ef291fc444a5bc84194ccb668ba63d5cb56af6390f83b95d90', NULL);
INSERT INTO rescind_frozen_history.client VALUES (5, '\xe3c5c522ede9212b18bbab42f2007fe6f857f765686c96144019f0d50d5ad612', NULL);
INSERT INTO rescind_frozen_history.client VALUES (6, NULL, '\xce6048c20511e0a70c529d0b69569a3a96ab3c726bc341ed8d4e71309286430a');
INSERT INTO rescind_frozen_history.client_object VALUES (1, '\x31406c877a8fcf0beb6b0d452dbba012705425cf3126a8eb2420462d4849ebe2');
INSERT INTO rescind_frozen_history.client_object VALUES (2, '\x5f16ae044dcc92785808a42bb6f1dad972e8736aeeb99a81dcf38ae69d7187b7');
INSERT INTO rescind_frozen_history.client_object VALUES (3, '\xb438f98a096486ccde8017360c33491e1c2a202b83eb71be0f15186c46091d99');
INSERT INTO rescind_frozen_history.client_object VALUES (4, '\x3fee08020b6d71ded4073d5236c06009877b84be62af2bfd1703225dc73de801');
INSERT INTO rescind_frozen_history.client_object VALUES (5, '\xa45b130ba898a63f0d3a64d744a318b9674fe08c43908e2ed1acf2984309f427');
INSERT INTO rescind_frozen_history.identity VALUES (1, 'clinic-0', NULL, '\x420da61d69e9dd064be6dab1273457cee494a79779d692b5c36051826c5b7cab');
INSERT INTO rescind_frozen_history.identity VALUES (2, 'clinic-1', NULL, '\xe391591ad7ca49961311487859fb59a1110b02b344a375db7eea003f94cfb0c4');
INSERT INTO rescind_frozen_history.identity VALUES (4, 'clinic-3', NULL, '\xef542a314de1b93e95d0f5872681f3a7821f5435e6b32abebb5d682da39d4703');
INSERT INTO rescind_frozen_history.identity VALUES (5, 'clinic-4', NULL, '\x0b23ebaf8a127b22ea1957f10f1eac9339e777db1fd56ecdd615aad28c1eb827');
INSERT INTO rescind_frozen_history.identity VALUES (3, 'clinic-2', 'Clinic of the North', '\xd324d6f075fd616c54dbe761050c5b435b8e219cc5260709993eb0cd083d427c');
INSERT INTO rescind_frozen_history.journal VALUES (1, 'run', '2026-11-19T08:43:00.622143+00:00', '{"capacity":2,"facts":{"averages":true,"batch":null,"body":null,"class":"Facts","doubts":[],"equal_weights":false,"fixed_settings":true,"frozen":"","independent_randomness":true,"keeps_sums":false,"public":null,"public_rounds":true,"public_schedule":false,"redrawn_rounds":false,"sample":null,"sampling":{"class":"Sampling","name":"EVERYBODY"},"secret_noise":true,"solved":false,"sources":{"class":"Sources","distances":{"class":"Source","name":"CHECKED"},"identity":{"class":"Source","name":"CHECKED"},"reachable":{"class":"Source","name":"CHECKED"},"server":{"class":"Source","name":"CHECKED"},"training":{"class":"Source","name":"EXECUTED"}},"stages":null,"training":{"class":"LocalTraining","clips_gradients":false,"clips_updates":false,"constant_learning_rate":true,"learning_rate":1.0,"loss":{"class":"SoftmaxL2","l2":0.02,"row_norm":1.0},"momentum":0.0,"optimizer":"sgd","precision":"float64","proximal":0.0,"server_learning_rate":1.0,"server_momentum":0.0,"server_optimizer":"average","steps":3,"untrained_buffers":[],"weight_decay":0.0}},"goal":null,"grid":9.5367431640625e-07,"tensors":[["bias","float64",[3]],["weight","float64",[3,6]]]}', '\x', '\x8074be0bf4683d68f9837b5e6951801cb3cda34d769dba82cb37607c9557af8d', '\x871996459e6d553fa69b94dbc5218fa2a8b12a8a5f4140317f61f9782e35475d');
INSERT INTO rescind_frozen_history.journal VALUES (2, 'branch', '2026-11-19T08:43:00.638727+00:00', '{"bare":[],"hidden":[],"model":"e208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37","noise_rounding":0.0,"number":0,"parent":null,"participations":[],"requests":[],"sigma":0.0,"unbounded":false,"unit_roundoff":0.0}', '\x', '\xf7be3657318ef2a586d12410d19285e7713ef4955c1e8461a0a4549898a8dac4', '\xd9b2f9d2e11af043f0830b48610c0342aa88553f0277b8abc2647b51efb47321');
INSERT INTO rescind_frozen_history.journal VALUES (3, 'registration', '2026-11-19T08:43:00.684073+00:00', '{"first":1,"last":6}', '\xb7e5da4d92dd290e9613b2bacc19aad4b0e0b8c4eab8b573ca19e832492fad0a', '\x7c0be5e93fcbc5f9706a7fc137771571c820544e9aa6fed995fd6bbea00827a5', '\x56801375b1182e4e22b96268bc4e64536e06b4688b5b7e1794ebb7485457e7ad');
INSERT INTO rescind_frozen_history.journal VALUES (4, 'round', '2026-11-19T08:43:00.703899+00:00', '{"branch":0,"resumed":true,"round":1}', '\x8cc3a861c17fca52234380b6e40e0c019c6c7a8136d9dc8f033c803456725d3e', '\xe23b8f649c816f4fddbc04dc0fe8da35cdf0e8376c3b092ab47398049c3042c9', '\x197d3821f99ad3a527aec48467d74c2f799d8e324edfff1e9e260a4383fc9790');
INSERT INTO rescind_frozen_history.journal VALUES (5, 'round', '2026-11-19T08:43:00.726113+00:00', '{"branch":0,"round":2}', '\xce79aa385ab12470c3c04a25b085ab159321e41e686bea8e5c47af76c3e3e370', '\xc59f7448a2d086963d084d38500fed616e6d390a6e73b9e9c7a024941a584642', '\x7132a26749a79a694a9121c0ea0604bc9736dc6d5121c29317229417e6e51d13');
INSERT INTO rescind_frozen_history.journal VALUES (6, 'round', '2026-11-19T08:43:00.741103+00:00', '{"branch":0,"round":3}', '\x3034370622ed83eaf46f831390b486d4502dc09c9b1eca7e61459155eecad34e', '\xe4be2cec791517f8b2ac9b4b46a6c3afd21ab5d194d7787428c1b5a96f62a232', '\x6bca9778489b349c3bcb8a56487f1d63e80c442c53c6a990272a2feb34c4a49b');
INSERT INTO rescind_frozen_history.journal VALUES (7, 'sums', '2026-11-19T08:43:00.763408+00:00', '{"branch":0,"round":3,"sums":[[1,"cce44e3d35a00028acf5c8dd35206bb3806ef22d4f659bd6777589083e8e8338"],[2,"2e75ee90c88406925992ec6ede038258c5d737e05dbd8f97ddb9f09ff7ca65cb"],[3,"5a9ee7c41adaf4b8be53b00858875dda9201d64477f1488af57a3811a3ce0dd0"],[4,"3a0e5cd4dd451d14877a9e8edefade61686fa6b5daa74fb7834dda91a783d672"],[5,"f55826ee3a283cdd19cb37ab505e4ad01b45af71fc187d357d0f7ca0d4c52154"],[6,"8fb350416cc590d549a52755acec718e9c7c561b81d44098bf06e7040cf42ded"]]}', '\x', '\x7160bc271232332aa292de95c43922aeb0c49a43ccc6d8f4c973010e0c5c169c', '\x9df2a1949e666b2f58f7c1539707af2cfec94c717ecf0b088176b9ed43fb4b9b');
INSERT INTO rescind_frozen_history.journal VALUES (8, 'named', '2026-11-19T08:43:00.772218+00:00', '{"federation":"heart","model":"risk head","operator":"City Hospitals"}', '\x', '\x69bdc6fd6b1579a190f3530e1300984fda0d0961df921745c1a6d3a0ea531988', '\x96fbfeb289f39a14e8d4afb08d966d275d9fede6de374d5024a41221ac33a3ed');
INSERT INTO rescind_frozen_history.journal VALUES (9, 'label', '2026-11-19T08:43:00.778397+00:00', '{"labels":[[3,"3833ae7a6404c2bb3b5352c08dacbe249bc217e239bd5ae5e95c46c5345b4204"]]}', '\x', '\xab3ca20c9e5b0fde63ccbeeb5d85cf478fcb5ec06f6f502a0d9c9897edfad10a', '\x970d89063a1cdcef74d9ea27e8ac73b6ad633eb43dd60a1d4911dd74cbc67004');
INSERT INTO rescind_frozen_history.journal VALUES (10, 'request', '2026-11-19T08:43:00.806887+00:00', '{"deadline":"2026-12-19T08:43:00.788275+00:00","forgotten":["b82d9ed75d3002a6fec1729edaec4be9e37d6b5a1e78f8c8d6aff7b4630e7f26"],"request":{"budget":{"class":"Budget","delta":1e-05,"epsilon":5.0},"class":"Request","group":{"class":"frozenset","items":[6]},"releases":1,"scope":{"class":"PrivacyScope","name":"GROUP"}},"sender":{"asker":{"class":"Asker","name":"OPERATOR"},"class":"Sender","proof":""}}', '\x', '\x2f0f0d13b98bf046dbc183270aeeb8e080981c23f4ac74499a7d30781b8ea72d', '\xcd7ef64ca68ad3bf2d1bcefe39f693702059417756210bb58e4d1c796ce65167');
INSERT INTO rescind_frozen_history.journal VALUES (11, 'plan', '2026-11-19T08:43:00.912967+00:00', '{"candidate":{"class":"Candidate","declared":[],"mode":{"class":"Mode","name":"INSTANCE"},"node":{"branch":0,"class":"Node","eligible":true,"index":3,"round":3},"obstacles":[],"predicted_rounds":3.0,"rechecked":[],"releases_mu":1.1202311809150587,"sigma":0.5,"solving":null,"weakened":[]},"method":"Last","public_plan":false,"requests":[1],"seen":6}', '\x', '\x174968f855a0ca63ef3fb6e15a02aebd4640b244e6068fc37fedabbb19eb0f08', '\xd3389e2ec630871168a6b6ac50a5bc8f6860367810accd54f35e94152c683c2b');
INSERT INTO rescind_frozen_history.journal VALUES (12, 'branch', '2026-11-19T08:43:00.945453+00:00', '{"bare":[],"hidden":[1],"model":"c7dc78aa5e470d0de44ccebc891d6871c2a41569bf900c44a2479b813be1e9b1","noise_rounding":4.3702847448274445e-06,"number":1,"parent":{"branch":0,"class":"ModelId","round":3},"participations":[],"requests":[1],"sigma":0.5,"unbounded":false,"unit_roundoff":1.1102230246251565e-16}', '\x', '\x9651308415bb93d2ceff92b7f4fa25d5281b525a13421528c4205720097f9dc4', '\xfb2e3bb1cf902d71422431e2671d2b8be66d016b6a37fdc8635a197f37e5d468');
INSERT INTO rescind_frozen_history.journal VALUES (13, 'round', '2026-11-19T08:43:00.990820+00:00', '{"branch":1,"resumed":true,"round":1}', '\x9477092e82ed17d3ce6c61e81645e5c09f46718a5b62845c1074b9d6fe718a17', '\x5a2531e43bf314d8605491295d71e495ef51bdf3d84472bed9994ee761092532', '\xf8119dfc030da25b90885d8d99c917c7003cdd2e7b9c9c612d40e907297042f4');
INSERT INTO rescind_frozen_history.journal VALUES (14, 'round', '2026-11-19T08:43:01.013043+00:00', '{"branch":1,"round":2}', '\x80af6c682b64a60007d075b306822f378c59f4dd9c69730817f87e9d6255c02e', '\x1a58057756564e405e3e6f301fe584a12faf05183f734a1a62d3aa4eac1f574c', '\xe57ca31a1bd24d242d07b5e31889d98f46f2c113ac8dab7d239cdb71a13cb687');
INSERT INTO rescind_frozen_history.journal VALUES (15, 'retrained', '2026-11-19T08:43:01.028638+00:00', '{"branch":1,"model":"943c18dea0e2e9820f82727d7c0814a88794568a7c09f2ffe36bb82a9299e347","rounds":2}', '\x', '\x7028a059f2066623f68313ea82948df8ed047083d605e83fc5aa8f1071e3d98d', '\x012096ef17318a83ccbe7eaca93b900fd81a597448ce5fdaf7814780582e3200');
INSERT INTO rescind_frozen_history.journal VALUES (16, 'erasure', '2026-11-19T08:43:01.152324+00:00', '{"abandoned":[],"branch":1,"clients":[6],"keys":[6],"level":{"class":"ErasureLevel","name":"PURGE"},"models":1,"origin":{"branch":0,"class":"ModelId","round":0},"requests":[1],"stays":["one sensitivity of each remaining client, which was measured with the client present","one largest weight of each remaining client, rounded up to a coarse list: with its own count it tells about how many examples all participants of a round had","the pseudonym, in the list of those who once took part, and before which round it first did","keyed digests of the name, by which a returning client is recognised and finds itself in a certificate: whoever holds the run''s secret file too, which lies outside of the ledger, can test guesses of the name","the pseudonym, in the request and in its registration, whose time tells when the client first took part; the restart''s round and noise, in the plan","the roots of erased rounds and of registrations, which commit to numbers and the name under salts that are gone"],"stretch":[{"branch":0,"class":"Span","first":1,"last":3}],"superseded":[],"updates":1}', '\x', '\x0b0afed6df88e680f06c3d353c621292885e4d583e1468dd3686f8680e285aaa', '\xfb0385ce8999543d52921e958ddde47eb504ecdd7fd7b700e2bd6d6427a3237f');
INSERT INTO rescind_frozen_history.journal VALUES (17, 'remains', '2026-11-19T08:43:01.184259+00:00', '{"branch":1,"digest":"72b215a70ec548d461c3cc1c6eb64049526f015910d1cc43c07142e09b6232bd","erasure":16}', '\x', '\xfc90db849e0bac774afb066915da40f87f421a7fdaae01708e7d1d002d242a19', '\x8ed00e59802667df89bd40e76e91109d8175bb7a7fbfc436036984664fbae447');
INSERT INTO rescind_frozen_history.journal VALUES (18, 'erased', '2026-11-19T08:43:01.697960+00:00', '{"erasure":16,"left":["The server''s write-ahead log (pg_wal) holds erased values until its segments are removed or written over, and wal_recycle keeps old segments as they are until then.","Backups and snapshots of the server, if there are any, hold what they held."],"roots":"84b42ccb5ec2196affed3d250608918a1a8a4ba6d85a403b0366b31afb027416","rounds":3,"suppressed":"f3c75a5df0d6be816fa802f0954f7747d24f867b2ecc7e602efa19cb3998f84c"}', '\x', '\x4ec3189c1d09df5df94254a0fed7553b59798eb740058017041449a18882fdfc', '\x904378c3e0fc5e747c66e05bd1fb1f6a1f7267969beb881e78f5fbe61de47522');
INSERT INTO rescind_frozen_history.kept VALUES (0, 0, '\xe208e73f7e0d52a2d8afc6f05f4cfa30f9a17b898495174ef22dc72b60de6a37');
INSERT INTO rescind_frozen_history.kept VALUES (1, 1, '\x914d408ca21945180caec4f59eb79ef95d281566602f478c2f148b679710e138');
INSERT INTO rescind_frozen_history.kept VALUES (1, 2, '\x943c18dea0e2e9820f82727d7c0814a88794568a7c09f2ffe36bb82a9299e347');
INSERT INTO rescind_frozen_history.participation VALUES (0, 1, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 2, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 3, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 4, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 5, 13);
INSERT INTO rescind_frozen_history.participation VALUES (0, 1, 14);
INSERT INTO rescind_frozen_history.participation VALUES (0, 2, 14);
INSERT INTO rescind_frozen_history.participation VALUES (0, 3, 14);
INSERT INTO rescind_frozen_history.participation VALUES (0, 4, 14);
INSERT INTO rescind_frozen_history.participation VALUES (0, 5, 14);
INSERT INTO rescind_frozen_history.round VALUES (13, 1, 1, 0.9411958146972741, 1.97412414473199e-09, 0.4648615737343122, '\x914d408ca21945180caec4f59eb79ef95d281566602f478c2f148b679710e138', '\xd587cf93b0128b4dd86f13da22edd3f46cfbeec76556e975257e709db47aaa84', '\x0100000000000000000000000000284031612a5eccbbe93f0300000002000000000000000000000000002a401f1ac2bf6a71e83f0300000003000000000000000000000000002c40b51953f5efa5e43f0300000004000000000000000000000000002e4003ae3e2c3953dc3f030000000500000000000000000000000000284025134ba092dfe13f03000000', '\xebf8c774bdb1e43fb0b78541d790d5bfc4c67c258299cebf9449d578626fb6bf987d31e42357bb3fb0b78541d790d5bff88cf11ab2abe23f229ed5f27a4ebabf1fb31f051ce0a7bf6877e944b4efbdbfc4c67c258299cebf229ed5f27a4ebabf0c5282d890a5da3ff78aa87daed6313f8cc438bdc85ec1bf9449d578626fb6bf1fb31f051ce0a7bff78aa87daed6313fa25b697e7c12c93f17d3a8b6ea64bbbf987d31e42357bb3f6877e944b4efbdbf8cc438bdc85ec1bf17d3a8b6ea64bbbf136913a14bf7d33f');
INSERT INTO rescind_frozen_history.round VALUES (14, 1, 2, 0.9411958146972741, 1.9538521514731964e-09, 0.3561227092368335, '\x943c18dea0e2e9820f82727d7c0814a88794568a7c09f2ffe36bb82a9299e347', '\xe29ee06c70291ac5cd5d84ca51be6ce2e4acfdb046035a699cd4efc866d595a5', '\x0100000000000000000000000000284062a1c1ee72ede93f0300000002000000000000000000000000002a400574ba5444fae73f0300000003000000000000000000000000002c40ee9217987941e43f0300000004000000000000000000000000002e406d759011b895db3f03000000050000000000000000000000000028406d51d34d1642e03f03000000', '\x77ec1b85e501e53f93db2bd1b55ad5bf9d32b73e29ddcfbf9f98a512f280adbfe805873fdf43b13f93db2bd1b55ad5bf21d1098667f7e13fd0d406b3374cb6bfea83b1e3c302b1bf8a622ac29e03b7bf9d32b73e29ddcfbfd0d406b3374cb6bff8c0caebbba4d93f8bfdaaf4898c8fbf54476ce93ddbbabf9f98a512f280adbfea83b1e3c302b1bf8bfdaaf4898c8fbf8b21ea1b63c7c73f863d1d1281aab5bfe805873fdf43b13f8a622ac29e03b7bf54476ce93ddbbabf863d1d1281aab5bfc4c9c7933d85d03f');
INSERT INTO rescind_frozen_history.run VALUES (8, 'frozen_history', '\x1a18e14a7ee3906d36d142ff32dc78a3fa51abbb6c7bb50fd0486e33950dd202', '\x45533cddbaf4f82d76d52086b5c4eda1e2cbf91c9e9182b64c734db654c207b9');
INSERT INTO rescind_frozen_history.stretch VALUES (1, 0, 0, true, '\x82db3932adf8d8b8802ccac126a48720f343b4facedbe89a343bd4e00c53d51c', '\x0100000000000000d6d30a708b2de13fcd3b7f669ea0c63f02000000000000008fff8cf8a0a9db3fcd3b7f669ea0c63f03000000000000007e7b38b91ef2da3fadd35a999fe8ca3f0400000000000000ab87da6ba7a1d33fadd35a999fe8ca3f050000000000000048b7c465c0e5d13fcd3b7f669ea0c63f0600000000000000000000000000f07f000000000000f03f');
INSERT INTO rescind_frozen_history.suppression VALUES ('5124d9b0655c6fdf323496f1b077c1e77532e2dc0176f51289f411482f7eee54', 6);
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
