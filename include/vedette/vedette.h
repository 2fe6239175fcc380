// Everything but the libtorch adapter.
#pragma once
#include "vedette/bound.h"
#include "vedette/check.h"
#include "vedette/machine.h"
#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/policy.h"
#include "vedette/replay.h"
#include "vedette/result.h"
#include "vedette/rows.h"
#include "vedette/session.h"
#include "vedette/units.h"
