//go:build e2e

package e2e

import "testing"

// chapter is a test: a title that says the promise, and the story that proves it.
type chapter struct {
	title string
	tell  func(*testing.T)
}

// What steps may rely on, on a real node.
func TestSteps(t *testing.T) {
	together(t, []chapter{
		{"a step that exits 7 fails with its code and its last words, and its logs can be read", exitCode},
		{"a step over its memory limit fails with OOMKilled in its message", outOfMemory},
		{"an image that cannot be pulled ends at startDeadlineSeconds, with the pull error in its message", missingImage},
		{"a sidecar does not keep a step from completing", sidecar},
		{"what a step leaves in the workspace and as its output, the next step finds", workspaceAndOutput},
		{"immediate suspension sends SIGTERM to the running step, and resuming runs it again", suspension},
		{"deletion sends SIGTERM to the running step, and the object goes only after its Pod", deletion},
	})
}

// What an administrator may rely on, of the operator as it is installed.
func TestInstallation(t *testing.T) {
	together(t, []chapter{
		{"the operator runs where the profile restricted is enforced", operatorIsRestricted},
		{"the webhook refuses the edit of a step that has started, and says why", refusedEdit},
		{"the webhook's certificate is the operator's own", ownCertificate},
		{"what is not watched is neither touched nor refused", unwatchedNamespace},
		{"metrics are for those who may read them", metrics},
		{"the operator may do what it needs in watched namespaces, and nothing more", leastPrivilege},
		{"wherever it may patch, it may not change what users ask for", noSpec},
	})
}

// What may be relied on in a JobReport, of Jobs as a real node leaves them.
func TestJobReport(t *testing.T) {
	together(t, []chapter{
		{"each stale Job is found, for the right reason, and none is touched", staleJobs},
		{"the plugin finds the same from a laptop, with nothing but permission to list Jobs", sameFromALaptop},
	})
}

// What the kubectl plugin does on a real node. (What needs none is in test/integration.)
func TestPlugin(t *testing.T) {
	together(t, []chapter{
		{"seq logs -f prints each line of each step once, in order, and ends with the run", testPluginFollowsLogs},
		{"seq watch ends with the run, and its exit code shows how the run ended", testPluginWatchesRuns},
	})
}

// What happens to sequences when the operator is disturbed.
func TestDisturbances(t *testing.T) {
	inTurn(t, []chapter{
		{"a new certificate is made and served without a restart when the old one is taken away", newCertificate},
		{"a rolling restart hands the Lease over at once, and no request meets a webhook that is gone", rollingRestart},
		{"of two replicas, the other takes over when the leader hangs, and again when it is killed", failOver},
		{"a drain continues after the operator was killed, and no job is lost", testDrainContinuesAfterOperatorRestart},
		{"sequences complete, each step run once, while the operator is killed at random moments", killed},
	})
}

// Jobs while their workers start and stop.
func TestQueues(t *testing.T) {
	inTurn(t, []chapter{
		{"no job is lost or repeated during rollouts and scaling, and the pool scales to zero", testNoJobIsLostDuringRollouts},
		{"no job is lost when workers and the broker are killed, and few are repeated", testNoJobIsLostWhenPodsAreKilled},
		{"the ledger shows that workers without draining repeat jobs", testDeploymentWithoutDrainIsDetected},
		{"the ledger shows that workers that acknowledge first lose jobs", testAcknowledgingFirstLosesJobs},
	})
}

// Features of WorkerPools, with a real node.
func TestWorkers(t *testing.T) {
	together(t, []chapter{
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
	together(t, []chapter{
		{"a session completes with the result and the cost that its runner leaves", sessionResult},
		{"a runner finds itself without root, capabilities or a token, and can write to its own directories only", sessionConfined},
		{"a session that uses all there is keeps to the profile restricted, and its sidecar does not keep it from completing", sessionRestricted},
		{"a session that is stopped and restarted finds its workspace unchanged", sessionRestarted},
		{"the timeout counts over two runs: the second ends when what the first has left is used up", sessionTimeout},
		{"a session whose runner shows no activity is stopped, and one that renews its Lease is not", sessionIdle},
		{"a runner that exits with another code than 0 fails its session, which reports the code and the last output", sessionExit},
		{"a runner over its memory limit fails its session with OOMKilled", sessionOutOfMemory},
		{"an image that cannot be pulled fails the session at startupTimeout, with the pull error in its message", sessionMissingImage},
		{"an invalid configuration fails the session at startupTimeout, with the reason in its message", sessionMisconfigured},
		{"a run that failed is tried again, and costs what all its attempts cost", sessionRetried},
		{"an evicted session continues in its workspace, without using up a retry", sessionEvicted},
		{"an interactive session is Running when its port answers, to those who may ask, until it is stopped", sessionInteractive},
		{"an interactive session is stopped when its runner says that it has finished", sessionFinished},
		{"a session continues in the workspace of another, which is deleted with the last of them", sessionContinued},
		{"a session belongs to who makes it, whatever it says, and is closed to all others", sessionOwner},
		{"the plugin follows a session from attempt to attempt, and prints its result", testPluginFollowsASession},
		{"the plugin stops and restarts a session", testPluginStopsASession},
	})
}

// What the network is to a session, where NetworkPolicies are enforced.
func TestSessionNetwork(t *testing.T) {
	together(t, []chapter{
		{"a session reaches what its SessionRunner's egress names, and the cluster's DNS, and nothing else", sessionEgress},
		{"the network is closed before a session's first packet", sessionFirstPacket},
		{"only Pods that ingressFrom selects can reach an interactive session, and none can reach any other session", sessionIngress},
	})
}

// What is left of sessions that are deleted.
func TestDeletedSessions(t *testing.T) {
	inTurn(t, []chapter{
		{"twenty sessions are deleted at once, and all they were made of is gone within 30 s", sessionsDeleted},
		{"the same while no operator runs", sessionsDeletedWithoutOperator},
	})
}

// How the operator comes and goes.
func TestLifecycle(t *testing.T) {
	inTurn(t, []chapter{
		{"an upgrade from the previous manifest leaves a running step alone, and the new operator takes over", upgrade},
		{"a namespace goes with its queues, workers and sequences, though it takes the operator's permissions first", namespaceGoes},
		{"after uninstalling, only what ran keeps a finalizer, until the operator is back or it is removed by hand", uninstall},
		{"installed for all namespaces, it serves one that was not known before", clusterWide},
	})
}

// together runs scenarios that do not affect each other.
func together(t *testing.T, chapters []chapter) {
	for _, c := range chapters {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			c.tell(t)
		})
	}
}

// inTurn runs scenarios that need the operator exclusively.
func inTurn(t *testing.T, chapters []chapter) {
	for _, c := range chapters {
		t.Run(c.title, c.tell)
	}
}
