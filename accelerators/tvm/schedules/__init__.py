"""Generic schedules for every kernel that is not our own. TVM's default pipeline schedules no kernel."""
