// api_refused.cpp: what NCCL has and sennit has not: one-sided calls, communication from within
// kernels, growing, suspending. Each says so. And the teams of ranks, which sennit answers: no rank
// reaches another one's memory from a kernel, so each is alone in its team.
#include <string>

#include "nccl/exported.hpp"
#include "nccl/group.hpp"
#include "nccl/report.hpp"

using namespace sennit::nccl;  // NOLINT: the functions below are the library's

namespace {

constexpr const char* kOneSided = "has no one-sided calls: use ncclSend and ncclRecv";
constexpr const char* kDevice = "has no communication from within kernels";
constexpr const char* kGrow = "cannot add ranks to a communicator: make a new one";
constexpr const char* kSuspend = "holds no memory of a GPU that it could give back";

ncclTeam_t whole(ncclComm_t comm) {
  ncclTeam_t team{0, 0, 1};
  ncclCommCount(comm, &team.nRanks);
  ncclCommUserRank(comm, &team.rank);
  return team;
}

constexpr ncclTeam_t kAlone{1, 0, 1};

}  // namespace

ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId*) {
  return refuse("ncclCommGetUniqueId", kGrow);
}
ncclResult_t ncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*) {
  return refuse("ncclCommGrow", kGrow);
}
ncclResult_t ncclCommSuspend(ncclComm_t, int) { return refuse("ncclCommSuspend", kSuspend); }
ncclResult_t ncclCommResume(ncclComm_t) { return refuse("ncclCommResume", kSuspend); }

ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                           unsigned int, ncclComm_t, cudaStream_t) {
  return refuse("ncclPutSignal", kOneSided);
}
ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return refuse("ncclSignal", kOneSided);
}
ncclResult_t ncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t) {
  return refuse("ncclWaitSignal", kOneSided);
}

ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*) {
  return refuse("ncclDevCommCreate", kDevice);
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*) {
  return refuse("ncclDevCommDestroy", kDevice);
}
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**) {
  return refuse("ncclGetLsaDevicePointer", kDevice);
}
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**) {
  return refuse("ncclGetLsaMultimemDevicePointer", kDevice);
}
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, size_t, void*, void**) {
  return refuse("ncclGetMultimemDevicePointer", kDevice);
}
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**) {
  return refuse("ncclGetPeerDevicePointer", kDevice);
}
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t, size_t, int, ncclTeam_t, void*, size_t*) {
  return refuse("ncclGetCftDeviceLeInfo", kDevice);
}
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t, size_t, void*, size_t*) {
  return refuse("ncclGetMultimemDeviceLeInfo", kDevice);
}
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t, size_t, int, void*, size_t*) {
  return refuse("ncclGetPeerDeviceLeInfo", kDevice);
}
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t, int, void*, void*) {
  return refuse("ncclLsaBarrierCreateRequirement", kDevice);
}
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, void*, void*) {
  return refuse("ncclGinBarrierCreateRequirement", kDevice);
}
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t, int, int, void*, void*) {
  return refuse("ncclGinInboxA2ACreateRequirement", kDevice);
}
ncclResult_t ncclGinOutboxCreateRequirement(int, int, void*, void*) {
  return refuse("ncclGinOutboxCreateRequirement", kDevice);
}
ncclResult_t ncclLLA2ACreateRequirement(int, int, void*, void*) {
  return refuse("ncclLLA2ACreateRequirement", kDevice);
}
int ncclLLA2ACalcSlots(int, int) {
  refuse("ncclLLA2ACalcSlots", kDevice);
  return 0;
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm) { return whole(comm); }
ncclTeam_t ncclTeamLsa(ncclComm_t) { return kAlone; }
ncclTeam_t ncclTeamRail(ncclComm_t comm) { return whole(comm); }
ncclTeam_t ncclTeamCft(ncclComm_t, int) { return kAlone; }
ncclTeam_t ncclTeamCftMultimem(ncclComm_t) { return kAlone; }
// The rank of the communicator, or of this rank's own team, behind a rank of a team that holds this
// rank.
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return whole(comm).rank + (rank - team.rank) * team.stride;
}
int ncclTeamRankToLsa(ncclComm_t, ncclTeam_t team, int rank) {
  return (rank - team.rank) * team.stride;
}
