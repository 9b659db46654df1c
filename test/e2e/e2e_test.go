//go:build e2e

package e2e

import "testing"

// scenario is a test: a title that says the promise, and the story that proves it.
type scenario struct {
	title string
	run   func(*testing.T)
}

// What steps may rely on, on a real node.
func TestSteps(t *testing.T) {
	runInParallel(t, []scenario{
		{"a step that exits 7 fails with its code and its last words, and its logs can be read", testStepExitCode},
		{"a step over its memory limit fails with OOMKilled in its message", testStepOutOfMemory},
		{"an image that cannot be pulled ends at startDeadlineSeconds, with the pull error in its message", testStepImageMissing},
		{"a sidecar does not keep a step from completing", testStepSidecar},
		{"what a step leaves in the workspace and as its output, the next step finds", testWorkspaceAndOutput},
		{"immediate suspension sends SIGTERM to the running step, and resuming runs it again", testImmediateSuspension},
		{"deletion sends SIGTERM to the running step, and the object goes only after its Pod", testSequenceDeletion},
	})
}

// What an administrator may rely on, of the operator as it is installed.
func TestInstallation(t *testing.T) {
	runInParallel(t, []scenario{
		{"the operator runs where the profile restricted is enforced", testOperatorIsRestricted},
		{"the webhook refuses the edit of a step that has started, and says why", testEditOfStartedStepIsDenied},
		{"the webhook's certificate is the operator's own", testCertificateIsIssuedByOperator},
		{"what is not watched is neither touched nor refused", testUnwatchedNamespaceIsIgnored},
		{"metrics are for those who may read them", testMetricsRequireAuthorization},
		{"the operator may do what it needs in watched namespaces, and nothing more", testLeastPrivilege},
		{"wherever it may patch, it may not change what users ask for", testOperatorCannotChangeSpecs},
	})
}

// What may be relied on in a JobReport, of Jobs as a real node leaves them.
func TestJobReport(t *testing.T) {
	runInParallel(t, []scenario{
		{"each stale Job is found, for the right reason, and none is touched", testOperatorReportsStaleJobs},
		{"the plugin finds the same from a laptop, with nothing but permission to list Jobs", testPluginReportsStaleJobs},
	})
}

// What the kubectl plugin does on a real node. (What needs none is in test/integration.)
func TestPlugin(t *testing.T) {
	runInParallel(t, []scenario{
		{"seq logs -f prints each line of each step once, in order, and ends with the run", testPluginFollowsLogs},
		{"seq watch ends with the run, and its exit code shows how the run ended", testPluginWatchesRuns},
	})
}

// What happens to sequences when the operator is disturbed.
func TestDisturbances(t *testing.T) {
	runOneByOne(t, []scenario{
		{"a new certificate is made and served without a restart when the old one is taken away", testCertificateIsRenewed},
		{"a rolling restart hands the Lease over at once, and no request meets a webhook that is gone", testRollingRestart},
		{"of two replicas, the other takes over when the leader hangs, and again when it is killed", testFailover},
		{"a drain continues after the operator was killed, and no job is lost", testDrainContinuesAfterOperatorRestart},
		{"sequences complete, each step run once, while the operator is killed at random moments", testOperatorIsKilled},
	})
}

// Jobs while their workers start and stop.
func TestQueues(t *testing.T) {
	runOneByOne(t, []scenario{
		{"no job is lost or repeated during rollouts and scaling, and the pool scales to zero", testNoJobIsLostDuringRollouts},
		{"no job is lost when workers and the broker are killed, and few are repeated", testNoJobIsLostWhenPodsAreKilled},
		{"the ledger shows that workers without draining repeat jobs", testDeploymentWithoutDrainIsDetected},
		{"the ledger shows that workers that acknowledge first lose jobs", testAcknowledgingFirstLosesJobs},
	})
}

// Features of WorkerPools, with a real node.
func TestWorkers(t *testing.T) {
	runInParallel(t, []scenario{
		{"an HTTP server behind a sidecar loses no job during scaling and rollouts; 503 is retried, 400 is dead-lettered", testSidecarWorkers},
		{"a command runs once for each job, and finishes after SIGTERM", testCommandWorkers},
		{"a failing canary is rolled back, and a good one is promoted step by step", testCanaryRollout},
		{"a rollout pauses when its image cannot be pulled, and the old revision serves", testMissingImagePausesTheRollout},
		{"workers of a StatefulSet lose no job during scaling and rollouts", testStatefulWorkers},
		{"an urgent pool preempts workers of another pool down to its minimum, within the budget", testPreemptionDrainsLowerPriorities},
		{"an evicted worker finishes its jobs, and only one is evicted at a time", testEvictionDrainsWorkers},
		{"rotated credentials reach the operator and the workers; a new password restarts neither", testBrokerCredentialsRotate},
	})
}

// What may be relied on of the sessions of AI agents, with a real node.
func TestSessions(t *testing.T) {
	runInParallel(t, []scenario{
		{"a session completes with the result and the cost that its runner leaves", testSessionResult},
		{"a runner finds itself without root, capabilities or a token, and can write to its own directories only", testSessionConfined},
		{"a session that uses all there is keeps to the profile restricted, and its sidecar does not keep it from completing", testSessionRestricted},
		{"a session that is stopped and restarted finds its workspace unchanged", testSessionRestarted},
		{"the timeout counts over two runs: the second ends when what the first has left is used up", testSessionTimeout},
		{"a session whose runner shows no activity is stopped, and one that renews its Lease is not", testSessionIdle},
		{"a runner that exits with another code than 0 fails its session, which reports the code and the last output", testSessionExit},
		{"a runner over its memory limit fails its session with OOMKilled", testSessionOutOfMemory},
		{"an image that cannot be pulled fails the session at startupTimeout, with the pull error in its message", testSessionMissingImage},
		{"an invalid configuration fails the session at startupTimeout, with the reason in its message", testSessionMisconfigured},
		{"a run that failed is tried again, and costs what all its attempts cost", testSessionRetried},
		{"an evicted session continues in its workspace, without using up a retry", testSessionEvicted},
		{"an interactive session is Running when its port answers, to those who may ask, until it is stopped", testSessionInteractive},
		{"an interactive session is stopped when its runner says that it has finished", testSessionFinished},
		{"a session continues in the workspace of another, which is deleted with the last of them", testSessionContinued},
		{"a session belongs to who makes it, whatever it says, and is closed to all others", testSessionOwner},
		{"the plugin follows a session from attempt to attempt, and prints its result", testPluginFollowsASession},
		{"the plugin stops and restarts a session", testPluginStopsASession},
	})
}

// What the network is to a session, where NetworkPolicies are enforced.
func TestSessionNetwork(t *testing.T) {
	runInParallel(t, []scenario{
		{"a session reaches what its SessionRunner's egress names, and the cluster's DNS, and nothing else", testSessionEgress},
		{"the network is closed before a session's first packet", testSessionFirstPacket},
		{"only Pods that ingressFrom selects can reach an interactive session, and none can reach any other session", testSessionIngress},
	})
}

// What is left of sessions that are deleted.
func TestDeletedSessions(t *testing.T) {
	runOneByOne(t, []scenario{
		{"twenty sessions are deleted at once, and all they were made of is gone within 30 s", testSessionsDeleted},
		{"the same while no operator runs", testSessionsDeletedWithoutOperator},
	})
}

// How the operator comes and goes.
func TestLifecycle(t *testing.T) {
	runOneByOne(t, []scenario{
		{"an upgrade from the previous manifest leaves a running step alone, and the new operator takes over", testUpgrade},
		{"a namespace goes with its queues, workers and sequences, though it takes the operator's permissions first", testNamespaceIsDeleted},
		{"after uninstalling, only what ran keeps a finalizer, until the operator is back or it is removed by hand", testUninstall},
		{"installed for all namespaces, it serves one that was not known before", testAllNamespaces},
	})
}

// runInParallel runs scenarios that do not affect each other.
func runInParallel(t *testing.T, chapters []scenario) {
	for _, c := range chapters {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

// runOneByOne runs scenarios that need the operator exclusively.
func runOneByOne(t *testing.T, chapters []scenario) {
	for _, c := range chapters {
		t.Run(c.title, c.run)
	}
}
