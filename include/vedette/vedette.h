// Everything but the libtorch adapter.
#pragma once
#include "vedette/check.h"
#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/policy.h"
#include "vedette/replay.h"
#include "vedette/result.h"
#include "vedette/session.h"
#include "vedette/units.h"
