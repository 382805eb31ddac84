//! The kernel contract: one test per promise, the same on every kernel.
//!
//! The promises are in `contract/promises.rs`, `contract/groups.rs` and `contract/contain.rs`, what
//! differs between the kernels in `contract/rig.rs`.

mod contain;
mod groups;
mod host;
mod linux;
mod promises;
mod rig;
mod sim;

macro_rules! kernel {
    ($module:ident = $rig:ty) => {
        mod $module {
            kernel! {
                @ $module $rig;
                promises::the_outcome_comes_before_the_exit_and_the_exit_before_the_bytes
                promises::a_spawn_error_leaves_nothing
                promises::end_of_file_is_there_at_the_exit_notice
                promises::data_and_hang_up_in_one_edge_are_read_to_the_end
                promises::a_read_that_is_not_hot_gets_the_next_notice
                promises::a_stale_token_does_nothing
                promises::a_closed_read_end_is_closed_for_the_writer_at_once
                promises::exits_behind_hot_streams_are_announced_by_the_next_look
                promises::more_notices_than_fit_are_given_by_the_next_waits
                promises::a_wait_with_an_end_is_never_early
                promises::the_descriptor_is_readable_while_a_notice_waits
                promises::a_waker_wakes_once_or_more
                promises::stdin_tells_of_room_and_of_nobody_without_a_signal
                groups::the_group_exists_when_spawn_returns
                groups::an_exit_notice_for_nothing_is_answered_not_yet_and_does_not_spin
                groups::a_stopped_child_has_not_ended
                groups::a_stolen_child_is_ended_or_lost
                groups::a_probe_knows_empty_from_zombies_from_a_kept_leader
                groups::a_signal_never_leaves_the_group_when_numbers_repeat
                groups::a_group_is_signalled_after_its_leader_was_reaped
                groups::a_scan_finds_members_and_holders_and_no_zombies
                groups::the_end_of_a_watched_member_is_noticed
                groups::what_lingers_is_read_and_what_is_handed_over_is_left_alone
                contain::whoever_has_left_the_group_is_found_by_what_contains_it_and_signalled
                contain::whoever_is_outside_gets_a_signal_once_it_is_found_and_once_only
                contain::a_cookie_is_lost_with_the_environment_unless_it_was_found_before
                contain::a_cgroup_tells_of_its_end_is_killed_as_a_whole_and_removed
                contain::a_cgroup_of_work_that_goes_on_is_removed_when_that_ends
                contain::a_cgroup_that_cannot_be_had_is_an_error_and_leaves_nothing
            }
        }
    };
    (@ $module:ident $rig:ty; $($file:ident :: $promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                let promise = crate::contract::$file::$promise::<$rig>;
                crate::contract::rig::run::<$rig>(stringify!($promise), module_path!(), promise);
            }
        )*
    };
}

kernel!(simulated = crate::contract::sim::SimRig);
kernel!(simulated_without_group_signal = crate::contract::sim::SimRig<{ crate::contract::rig::NO_GROUP_SIGNAL }>);
kernel!(simulated_by_sigchld = crate::contract::sim::SimRig<{ crate::contract::rig::SIGCHLD }>);
kernel!(simulated_by_sigchld_without_group_signal = crate::contract::sim::SimRig<{ crate::contract::rig::SIGCHLD | crate::contract::rig::NO_GROUP_SIGNAL }>);
kernel!(simulated_in_a_storm = crate::contract::sim::SimRig<{ crate::contract::rig::STORM }>);
kernel!(epoll = crate::contract::linux::LinuxRig);
kernel!(epoll_without_group_signal = crate::contract::linux::LinuxRig<{ crate::contract::rig::NO_GROUP_SIGNAL }>);
kernel!(epoll_by_sigchld = crate::contract::linux::LinuxRig<{ crate::contract::rig::SIGCHLD }>);
kernel!(epoll_by_sigchld_without_group_signal = crate::contract::linux::LinuxRig<{ crate::contract::rig::SIGCHLD | crate::contract::rig::NO_GROUP_SIGNAL }>);
kernel!(uring = crate::contract::linux::LinuxRig<{ crate::contract::rig::URING }>);
kernel!(uring_by_sigchld_without_group_signal = crate::contract::linux::LinuxRig<{ crate::contract::rig::URING | crate::contract::rig::SIGCHLD | crate::contract::rig::NO_GROUP_SIGNAL }>);
