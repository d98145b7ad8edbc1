# SPDX-License-Identifier: BSD-2-Clause
#
# Clock ticks (of 10 ms) so far: of our target, the process pid; of the kernel's workers, in which
# nvmet_rdma handles its completions; of all that the machine was not idle. What rxe does in soft
# interrupts is in the last only. Reads /proc/stat and all /proc/PID/stat.
$1 == "cpu" { machine = $2 + $3 + $4 + $7 + $8 }
$1 == pid { ours = $14 + $15 }
/\(kworker/ {
	sub(/.*\) /, "")
	nvmet += $12 + $13
}
END { print ours + 0, nvmet + 0, machine + 0 }
