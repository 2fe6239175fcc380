PRAGMA application_id=1986294900;
PRAGMA user_version=2;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('complete','1');
INSERT INTO meta VALUES('imported','vedette-trace-1');
INSERT INTO meta VALUES('program','chain4');
INSERT INTO meta VALUES('schema','2');
CREATE TABLE tiers(tier INTEGER PRIMARY KEY, name TEXT NOT NULL, capacity_bytes INTEGER NOT NULL, addressable INTEGER NOT NULL);
CREATE TABLE links(source INTEGER NOT NULL, target INTEGER NOT NULL, bytes_per_s INTEGER NOT NULL, latency_ns INTEGER NOT NULL,
  shared INTEGER);
CREATE TABLE profiles(profile INTEGER PRIMARY KEY, step INTEGER NOT NULL, bucket TEXT NOT NULL, name TEXT NOT NULL,
  source TEXT NOT NULL, device TEXT NOT NULL, page_bytes INTEGER NOT NULL, tracked INTEGER NOT NULL);
INSERT INTO profiles VALUES(1,1,'1','chain4','tests/support/generate_trace','none',4096,0);
CREATE TABLE notes(profile INTEGER NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY(profile, position)) WITHOUT ROWID;
CREATE TABLE tensors(profile INTEGER NOT NULL, tensor INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL,
  kind TEXT NOT NULL, persistent INTEGER NOT NULL, shape TEXT, site_layer TEXT, site_op TEXT, PRIMARY KEY(profile, tensor)) WITHOUT ROWID;
INSERT INTO tensors VALUES(1,0,'x0',262144,'input',1,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,1,'w1',65536,'weight',1,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,2,'w2',65536,'weight',1,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,3,'w3',65536,'weight',1,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,4,'w4',65536,'weight',1,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,5,'x1',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,6,'x2',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,7,'x3',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,8,'x4',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,9,'g4',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,10,'dw4',65536,'gradient',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,11,'g3',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,12,'dw3',65536,'gradient',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,13,'g2',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,14,'dw2',65536,'gradient',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,15,'g1',262144,'activation',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,16,'dw1',65536,'gradient',0,NULL,NULL,NULL);
INSERT INTO tensors VALUES(1,17,'g0',262144,'activation',0,NULL,NULL,NULL);
CREATE TABLE tensor_places(profile INTEGER NOT NULL, tensor INTEGER NOT NULL, begin_byte INTEGER NOT NULL, end_byte INTEGER NOT NULL,
  PRIMARY KEY(profile, tensor)) WITHOUT ROWID;
CREATE TABLE layers(profile INTEGER NOT NULL, layer INTEGER NOT NULL, name TEXT NOT NULL, phase TEXT NOT NULL,
  PRIMARY KEY(profile, layer)) WITHOUT ROWID;
INSERT INTO layers VALUES(1,0,'layer1','forward');
INSERT INTO layers VALUES(1,1,'layer2','forward');
INSERT INTO layers VALUES(1,2,'layer3','forward');
INSERT INTO layers VALUES(1,3,'layer4','forward');
INSERT INTO layers VALUES(1,4,'loss','forward');
INSERT INTO layers VALUES(1,5,'layer4','backward');
INSERT INTO layers VALUES(1,6,'layer3','backward');
INSERT INTO layers VALUES(1,7,'layer2','backward');
INSERT INTO layers VALUES(1,8,'layer1','backward');
INSERT INTO layers VALUES(1,9,'layer1','optimizer');
INSERT INTO layers VALUES(1,10,'layer2','optimizer');
INSERT INTO layers VALUES(1,11,'layer3','optimizer');
INSERT INTO layers VALUES(1,12,'layer4','optimizer');
CREATE TABLE ops(profile INTEGER NOT NULL, op INTEGER NOT NULL, name TEXT NOT NULL, layer INTEGER, phase TEXT NOT NULL,
  time_ns INTEGER NOT NULL, workspace_bytes INTEGER NOT NULL, PRIMARY KEY(profile, op)) WITHOUT ROWID;
INSERT INTO ops VALUES(1,0,'matmul',0,'forward',1000000,0);
INSERT INTO ops VALUES(1,1,'relu_',0,'forward',1000000,0);
INSERT INTO ops VALUES(1,2,'matmul',1,'forward',1000000,0);
INSERT INTO ops VALUES(1,3,'relu_',1,'forward',1000000,0);
INSERT INTO ops VALUES(1,4,'matmul',2,'forward',1000000,0);
INSERT INTO ops VALUES(1,5,'relu_',2,'forward',1000000,0);
INSERT INTO ops VALUES(1,6,'matmul',3,'forward',1000000,0);
INSERT INTO ops VALUES(1,7,'relu_',3,'forward',1000000,0);
INSERT INTO ops VALUES(1,8,'loss',4,'forward',1000000,0);
INSERT INTO ops VALUES(1,9,'matmul_backward_weight',5,'backward',1000000,0);
INSERT INTO ops VALUES(1,10,'matmul_backward_input',5,'backward',1000000,0);
INSERT INTO ops VALUES(1,11,'matmul_backward_weight',6,'backward',1000000,0);
INSERT INTO ops VALUES(1,12,'matmul_backward_input',6,'backward',1000000,0);
INSERT INTO ops VALUES(1,13,'matmul_backward_weight',7,'backward',1000000,0);
INSERT INTO ops VALUES(1,14,'matmul_backward_input',7,'backward',1000000,0);
INSERT INTO ops VALUES(1,15,'matmul_backward_weight',8,'backward',1000000,0);
INSERT INTO ops VALUES(1,16,'matmul_backward_input',8,'backward',1000000,0);
INSERT INTO ops VALUES(1,17,'update',9,'optimizer',1000000,0);
INSERT INTO ops VALUES(1,18,'update',10,'optimizer',1000000,0);
INSERT INTO ops VALUES(1,19,'update',11,'optimizer',1000000,0);
INSERT INTO ops VALUES(1,20,'update',12,'optimizer',1000000,0);
CREATE TABLE operands(profile INTEGER NOT NULL, op INTEGER NOT NULL, role TEXT NOT NULL, tensor INTEGER NOT NULL,
  PRIMARY KEY(profile, op, role, tensor)) WITHOUT ROWID;
INSERT INTO operands VALUES(1,0,'read',0);
INSERT INTO operands VALUES(1,0,'read',1);
INSERT INTO operands VALUES(1,0,'write',5);
INSERT INTO operands VALUES(1,1,'read',5);
INSERT INTO operands VALUES(1,1,'write',5);
INSERT INTO operands VALUES(1,2,'read',2);
INSERT INTO operands VALUES(1,2,'read',5);
INSERT INTO operands VALUES(1,2,'write',6);
INSERT INTO operands VALUES(1,3,'read',6);
INSERT INTO operands VALUES(1,3,'write',6);
INSERT INTO operands VALUES(1,4,'read',3);
INSERT INTO operands VALUES(1,4,'read',6);
INSERT INTO operands VALUES(1,4,'write',7);
INSERT INTO operands VALUES(1,5,'read',7);
INSERT INTO operands VALUES(1,5,'write',7);
INSERT INTO operands VALUES(1,6,'read',4);
INSERT INTO operands VALUES(1,6,'read',7);
INSERT INTO operands VALUES(1,6,'write',8);
INSERT INTO operands VALUES(1,7,'read',8);
INSERT INTO operands VALUES(1,7,'write',8);
INSERT INTO operands VALUES(1,8,'read',8);
INSERT INTO operands VALUES(1,8,'write',9);
INSERT INTO operands VALUES(1,9,'read',7);
INSERT INTO operands VALUES(1,9,'read',9);
INSERT INTO operands VALUES(1,9,'write',10);
INSERT INTO operands VALUES(1,10,'read',4);
INSERT INTO operands VALUES(1,10,'read',9);
INSERT INTO operands VALUES(1,10,'write',11);
INSERT INTO operands VALUES(1,11,'read',6);
INSERT INTO operands VALUES(1,11,'read',11);
INSERT INTO operands VALUES(1,11,'write',12);
INSERT INTO operands VALUES(1,12,'read',3);
INSERT INTO operands VALUES(1,12,'read',11);
INSERT INTO operands VALUES(1,12,'write',13);
INSERT INTO operands VALUES(1,13,'read',5);
INSERT INTO operands VALUES(1,13,'read',13);
INSERT INTO operands VALUES(1,13,'write',14);
INSERT INTO operands VALUES(1,14,'read',2);
INSERT INTO operands VALUES(1,14,'read',13);
INSERT INTO operands VALUES(1,14,'write',15);
INSERT INTO operands VALUES(1,15,'read',0);
INSERT INTO operands VALUES(1,15,'read',15);
INSERT INTO operands VALUES(1,15,'write',16);
INSERT INTO operands VALUES(1,16,'read',1);
INSERT INTO operands VALUES(1,16,'read',15);
INSERT INTO operands VALUES(1,16,'write',17);
INSERT INTO operands VALUES(1,17,'read',1);
INSERT INTO operands VALUES(1,17,'read',16);
INSERT INTO operands VALUES(1,17,'write',1);
INSERT INTO operands VALUES(1,18,'read',2);
INSERT INTO operands VALUES(1,18,'read',14);
INSERT INTO operands VALUES(1,18,'write',2);
INSERT INTO operands VALUES(1,19,'read',3);
INSERT INTO operands VALUES(1,19,'read',12);
INSERT INTO operands VALUES(1,19,'write',3);
INSERT INTO operands VALUES(1,20,'read',4);
INSERT INTO operands VALUES(1,20,'read',10);
INSERT INTO operands VALUES(1,20,'write',4);
CREATE TABLE page_accesses(profile INTEGER NOT NULL, op INTEGER NOT NULL, tensor INTEGER NOT NULL, first_page INTEGER NOT NULL,
  end_page INTEGER NOT NULL, read INTEGER NOT NULL, written INTEGER NOT NULL, samples INTEGER);
CREATE TABLE plans(plan INTEGER PRIMARY KEY, step INTEGER NOT NULL, bucket TEXT NOT NULL, profile INTEGER, reserved_bytes INTEGER NOT NULL);
CREATE TABLE plan_reasons(plan INTEGER NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE plan_units(plan INTEGER NOT NULL, unit INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL, home INTEGER,
  begin_byte INTEGER, end_byte INTEGER, PRIMARY KEY(plan, unit)) WITHOUT ROWID;
CREATE TABLE plan_moves(plan INTEGER NOT NULL, position INTEGER NOT NULL, verb TEXT NOT NULL, issue INTEGER NOT NULL,
  due INTEGER NOT NULL, unit INTEGER NOT NULL, begin_byte INTEGER, end_byte INTEGER, source INTEGER NOT NULL,
  target INTEGER NOT NULL, last_use INTEGER, next_use INTEGER, gap_ns INTEGER, transfer_ns INTEGER NOT NULL, slack_ns INTEGER NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE plan_in_place(plan INTEGER NOT NULL, op INTEGER NOT NULL, unit INTEGER NOT NULL, tier INTEGER NOT NULL,
  PRIMARY KEY(plan, op, unit)) WITHOUT ROWID;
CREATE TABLE plan_recomputations(plan INTEGER NOT NULL, position INTEGER NOT NULL, before INTEGER NOT NULL, producer INTEGER NOT NULL,
  unit INTEGER NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE plan_order(plan INTEGER NOT NULL, position INTEGER NOT NULL, op INTEGER NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE names(name INTEGER PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO names VALUES(1,'matmul');
INSERT INTO names VALUES(2,'relu_');
INSERT INTO names VALUES(3,'matmul');
INSERT INTO names VALUES(4,'relu_');
INSERT INTO names VALUES(5,'matmul');
INSERT INTO names VALUES(6,'relu_');
INSERT INTO names VALUES(7,'matmul');
INSERT INTO names VALUES(8,'relu_');
INSERT INTO names VALUES(9,'loss');
INSERT INTO names VALUES(10,'matmul_backward_weight');
INSERT INTO names VALUES(11,'matmul_backward_input');
INSERT INTO names VALUES(12,'matmul_backward_weight');
INSERT INTO names VALUES(13,'matmul_backward_input');
INSERT INTO names VALUES(14,'matmul_backward_weight');
INSERT INTO names VALUES(15,'matmul_backward_input');
INSERT INTO names VALUES(16,'matmul_backward_weight');
INSERT INTO names VALUES(17,'matmul_backward_input');
INSERT INTO names VALUES(18,'update');
INSERT INTO names VALUES(19,'update');
INSERT INTO names VALUES(20,'update');
INSERT INTO names VALUES(21,'update');
CREATE TABLE steps(step INTEGER PRIMARY KEY, phase TEXT NOT NULL, bucket TEXT, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, bytes_dropped INTEGER NOT NULL, stall_count INTEGER NOT NULL,
  stall_ns INTEGER NOT NULL, faults INTEGER NOT NULL, live_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
  resident_bytes INTEGER NOT NULL, resident_max_bytes INTEGER NOT NULL, ops INTEGER NOT NULL, dropped_events INTEGER NOT NULL,
  process_bytes INTEGER);
INSERT INTO steps VALUES(1,'imported',NULL,0,21000000,0,0,0,0,0,0,0,1835008,0,0,21,0,NULL);
CREATE TABLE op_times(step INTEGER NOT NULL, op INTEGER NOT NULL, name INTEGER NOT NULL, began_ns INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL, resident_bytes INTEGER, live_bytes INTEGER, PRIMARY KEY(step, op)) WITHOUT ROWID;
INSERT INTO op_times VALUES(1,0,1,0,1000000,NULL,NULL);
INSERT INTO op_times VALUES(1,1,2,1000000,2000000,NULL,NULL);
INSERT INTO op_times VALUES(1,2,3,2000000,3000000,NULL,NULL);
INSERT INTO op_times VALUES(1,3,4,3000000,4000000,NULL,NULL);
INSERT INTO op_times VALUES(1,4,5,4000000,5000000,NULL,NULL);
INSERT INTO op_times VALUES(1,5,6,5000000,6000000,NULL,NULL);
INSERT INTO op_times VALUES(1,6,7,6000000,7000000,NULL,NULL);
INSERT INTO op_times VALUES(1,7,8,7000000,8000000,NULL,NULL);
INSERT INTO op_times VALUES(1,8,9,8000000,9000000,NULL,NULL);
INSERT INTO op_times VALUES(1,9,10,9000000,10000000,NULL,NULL);
INSERT INTO op_times VALUES(1,10,11,10000000,11000000,NULL,NULL);
INSERT INTO op_times VALUES(1,11,12,11000000,12000000,NULL,NULL);
INSERT INTO op_times VALUES(1,12,13,12000000,13000000,NULL,NULL);
INSERT INTO op_times VALUES(1,13,14,13000000,14000000,NULL,NULL);
INSERT INTO op_times VALUES(1,14,15,14000000,15000000,NULL,NULL);
INSERT INTO op_times VALUES(1,15,16,15000000,16000000,NULL,NULL);
INSERT INTO op_times VALUES(1,16,17,16000000,17000000,NULL,NULL);
INSERT INTO op_times VALUES(1,17,18,17000000,18000000,NULL,NULL);
INSERT INTO op_times VALUES(1,18,19,18000000,19000000,NULL,NULL);
INSERT INTO op_times VALUES(1,19,20,19000000,20000000,NULL,NULL);
INSERT INTO op_times VALUES(1,20,21,20000000,21000000,NULL,NULL);
CREATE TABLE moves(step INTEGER NOT NULL, move INTEGER NOT NULL, verb TEXT NOT NULL, cause TEXT NOT NULL, chunk INTEGER NOT NULL,
  bytes INTEGER NOT NULL, issued_ns INTEGER NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  PRIMARY KEY(step, move)) WITHOUT ROWID;
CREATE TABLE stalls(step INTEGER NOT NULL, stall INTEGER NOT NULL, op INTEGER NOT NULL, in_allocation INTEGER NOT NULL,
  began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, PRIMARY KEY(step, stall)) WITHOUT ROWID;
CREATE TABLE faults(step INTEGER NOT NULL, fault INTEGER NOT NULL, op INTEGER NOT NULL, chunk INTEGER NOT NULL, page INTEGER NOT NULL,
  write INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, PRIMARY KEY(step, fault)) WITHOUT ROWID;
COMMIT;
