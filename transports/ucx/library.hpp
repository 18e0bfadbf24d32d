// library.hpp: libucp, opened at run time, so that one build runs where there is no UCX.
//
// The functions are called as UCX calls them, without the prefix. What UCX defines in its headers
// (UCS_PTR_*, ucp_dt_make_*) needs no library.
#pragma once

#include <ucp/api/ucp.h>

#include "base/process/shared_library.hpp"

namespace sennit::ucx {

struct Library : SharedLibrary {
  static const Library& get();  // opened with the first call

  const Function<decltype(ucp_config_read)> config_read{*this, "ucp_config_read"};
  const Function<decltype(ucp_config_modify)> config_modify{*this, "ucp_config_modify"};
  const Function<decltype(ucp_config_release)> config_release{*this, "ucp_config_release"};
  const Function<decltype(ucp_cleanup)> cleanup{*this, "ucp_cleanup"};
  const Function<decltype(ucp_worker_create)> worker_create{*this, "ucp_worker_create"};
  const Function<decltype(ucp_worker_destroy)> worker_destroy{*this, "ucp_worker_destroy"};
  const Function<decltype(ucp_worker_get_efd)> worker_get_efd{*this, "ucp_worker_get_efd"};
  const Function<decltype(ucp_worker_arm)> worker_arm{*this, "ucp_worker_arm"};
  const Function<decltype(ucp_worker_query)> worker_query{*this, "ucp_worker_query"};
  const Function<decltype(ucp_worker_release_address)> worker_release_address{
      *this, "ucp_worker_release_address"};
  const Function<decltype(ucp_worker_set_am_recv_handler)> worker_set_am_recv_handler{
      *this, "ucp_worker_set_am_recv_handler"};
  const Function<decltype(ucp_worker_progress)> worker_progress{*this, "ucp_worker_progress"};
  const Function<decltype(ucp_worker_flush_nbx)> worker_flush_nbx{*this, "ucp_worker_flush_nbx"};
  const Function<decltype(ucp_ep_create)> ep_create{*this, "ucp_ep_create"};
  const Function<decltype(ucp_ep_close_nbx)> ep_close_nbx{*this, "ucp_ep_close_nbx"};
  const Function<decltype(ucp_am_send_nbx)> am_send_nbx{*this, "ucp_am_send_nbx"};
  const Function<decltype(ucp_am_recv_data_nbx)> am_recv_data_nbx{*this, "ucp_am_recv_data_nbx"};
  const Function<decltype(ucp_am_data_release)> am_data_release{*this, "ucp_am_data_release"};
  const Function<decltype(ucp_request_check_status)> request_check_status{
      *this, "ucp_request_check_status"};
  const Function<decltype(ucp_request_free)> request_free{*this, "ucp_request_free"};
  const Function<decltype(ucs_status_string)> status_string{*this, "ucs_status_string"};

  // As ucp_init() of the header, which asks for the version that it is of.
  ucs_status_t init(const ucp_params_t* params, const ucp_config_t* config,
                    ucp_context_h* context) const {
    return init_version_(UCP_API_MAJOR, UCP_API_MINOR, params, config, context);
  }

 private:
  Library() : SharedLibrary("libucp.so.0") {}
  const Function<decltype(ucp_init_version)> init_version_{*this, "ucp_init_version"};
};

}  // namespace sennit::ucx
