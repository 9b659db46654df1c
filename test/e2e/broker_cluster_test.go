//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// Numbers of jobs in a thousand whose first attempt fails, hangs until its context ends at the timeout of the
// Queue, and hangs regardless of it.
const failingJobs, hangingJobs, stuckJobs = 100, 10, 1

// brokerClusterTest is a test of the Queue orders on three NATS servers.
type brokerClusterTest struct {
	*queueEnv
	// inFlight is the maximum number of jobs that were in flight when a server was stopped.
	inFlight int
}

func testNoJobIsLostWithOneOfThreeBrokers(t *testing.T) {
	c := &brokerClusterTest{queueEnv: newQueueEnvOn(t, clusterNamespace, "nats-cluster")}
	if os.Getenv("E2E_JOBS") == "" {
		c.jobCount, c.jobRate = 1000, 25
	}
	c.patchQueue(`{"spec":{"messageTimeout":"5s"}}`)
	c.waitUntilReplicated(metav1.ConditionTrue, v1alpha1.ReasonFullyReplicated, "3 servers")
	c.createPool(nil)
	c.wantHangingJobsAborted()

	c.sendBatch(jobBatch{
		queue: "orders", run: "job", jobs: c.jobCount, rate: c.jobRate, takes: c.jobDuration,
		failing: failingJobs, hanging: hangingJobs, stuck: stuckJobs,
	})
	var lost string
	steps := map[int]func(){
		2: func() { lost = c.loseLeader() },
		3: func() {
			// The operator reports a lost server at its next sweep, and when it compares a changed Queue.
			c.patchQueue(`{"spec":{"maxBacklog":1000000}}`)
			c.waitUntilReplicated(metav1.ConditionFalse, v1alpha1.ReasonReplicasOffline, "2 of 3 replicas")
		},
		4: c.deployNATS, // replaces the lost server
		5: func() { c.evictBrokerOtherThan(lost) },
	}
	turns := 0
	c.rollOutAndScaleRepeatedly(func(turn int) {
		if step := steps[turn]; step != nil {
			step()
		}
		turns = turn
	})
	if turns <= len(steps) {
		t.Errorf("all jobs were sent before a broker was evicted")
	}
	c.waitUntilAllDone()
	c.runKubectl("rollout", "status", "statefulset/nats", "--timeout=10m")
	c.waitUntilReplicated(metav1.ConditionTrue, v1alpha1.ReasonFullyReplicated, "3 servers")
	c.wantNoneLost()
}

// wantHangingJobsAborted checks that each job that hangs in its first attempt is aborted and done in the
// second attempt.
func (c *brokerClusterTest) wantHangingJobsAborted() {
	c.t.Helper()
	const jobs = 5
	c.sendBatch(jobBatch{queue: "orders", run: "hung", jobs: jobs, rate: jobs, takes: 50 * time.Millisecond, hanging: 1000})
	c.waitUntilAllDone()
	if result := c.verifyBatch(jobBatch{run: "hung", jobs: jobs}); !result.EachDoneOnce() || result.Unsuccessful["aborted"] != jobs {
		c.t.Errorf("unexpected ledger of the jobs that hang: %+v", result)
	}
}

func (c *brokerClusterTest) wantNoneLost() {
	c.t.Helper()
	result := c.verifyJobs()
	if result.Done != result.Sent || len(result.Unexpected) > 0 {
		c.t.Errorf("unexpected ledger: %+v", result)
	}
	c.t.Logf("at most %d jobs were in flight when brokers were stopped; repeated: %q", c.inFlight, result.Repetitions)
	if result.Repeated > c.inFlight {
		c.t.Errorf("%d jobs were repeated, but at most %d were in flight", result.Repeated, c.inFlight)
	}
	// A job in flight whose broker is lost is delivered again: as a second attempt, or as the first, if the
	// other brokers did not know of it.
	for outcome, perThousand := range map[string]int{"failed": failingJobs, "aborted": hangingJobs, "stuck": stuckJobs} {
		want, got := c.jobCount*perThousand/1000, result.Unsuccessful[outcome]
		if got < want-c.inFlight || got > want+c.inFlight || got == 0 {
			c.t.Errorf("the outcome of %d attempts was %s, want %d", got, outcome, want)
		}
	}
}

// waitUntilReplicated waits for the condition Replicated of the Queue. message is the beginning of its message.
func (c *brokerClusterTest) waitUntilReplicated(status metav1.ConditionStatus, reason, message string) {
	c.t.Helper()
	poll.Until(c.t, "the Queue to report "+reason, func() bool {
		queue := c.getQueue("orders")
		is := meta.FindStatusCondition(queue.Status.Conditions, v1alpha1.ConditionReplicated)
		return is != nil && is.Status == status && is.Reason == reason && strings.HasPrefix(is.Message, message)
	})
}

// addInFlight adds the capacity of the workers, for a server that is about to stop.
func (c *brokerClusterTest) addInFlight() {
	for _, pod := range c.workerPods() {
		if pod.Status.Phase == corev1.PodRunning {
			c.inFlight += 10 // the concurrency of one worker
		}
	}
}

// loseLeader kills the server that leads the stream, and returns its name. As with a lost node, nothing
// replaces it until NATS is deployed again.
func (c *brokerClusterTest) loseLeader() string {
	c.t.Helper()
	leader := c.streamLeader()
	c.runKubectl("delete", "statefulset", "nats", "--cascade=orphan")
	c.addInFlight()
	c.runKubectl("delete", "pod", leader, "--grace-period=0", "--force")
	c.t.Logf("lost %s", leader)
	return leader
}

// streamLeader returns the name of the server that leads the stream of the Queue.
func (c *brokerClusterTest) streamLeader() string {
	c.t.Helper()
	var account struct {
		Details []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster struct {
					Leader string `json:"leader"`
				} `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/nats-0:8222/proxy/jsz?streams=true", c.namespace)
	require.NoError(c.t, json.Unmarshal([]byte(c.runKubectl("get", "--raw", path)), &account))
	for _, details := range account.Details {
		for _, stream := range details.Streams {
			if stream.Name == "yardmaster_orders" {
				return stream.Cluster.Leader
			}
		}
	}
	c.t.Fatalf("no server leads the stream: %+v", account)
	return ""
}

// evictBrokerOtherThan evicts a server once the PodDisruptionBudget allows it, which it does only when the
// replacement of the lost server has all messages. The other servers cannot be evicted together with it.
func (c *brokerClusterTest) evictBrokerOtherThan(lost string) {
	c.t.Helper()
	var others []*corev1.Pod
	for _, name := range slices.DeleteFunc([]string{"nats-0", "nats-1", "nats-2"}, func(name string) bool { return name == lost }) {
		others = append(others, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}})
	}
	c.evictOnlyOne(others[0], others[1])
	c.addInFlight()
}
