package integration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/natstest"
)

func TestAQueueOnAClusterOfThreeServersIsReplicated(t *testing.T) {
	t.Parallel()
	servers := natstest.StartCluster(t, 3)
	e := &queueEnv{t: t, ns: namespace(t), Server: servers.Servers[0]}
	e.createSecret("broker", "url", servers.URL())
	t.Cleanup(e.abandonQueues)
	e.createQueue("mail", "")
	is := e.waitForCondition("mail", v1alpha1.ConditionReplicated, metav1.ConditionTrue, v1alpha1.ReasonFullyReplicated)
	if is.Message != "3 servers have all messages" {
		t.Errorf("the message is %q", is.Message)
	}

	servers.Servers[2].Stop()
	e.waitForCondition("mail", v1alpha1.ConditionReplicated, metav1.ConditionFalse, v1alpha1.ReasonReplicasOffline)
	servers.Run(servers.Servers[2])
	e.waitForCondition("mail", v1alpha1.ConditionReplicated, metav1.ConditionTrue, v1alpha1.ReasonFullyReplicated)
}

func TestAQueueOnOneServerReportsThatItIsNotReplicated(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "")
	is := e.waitForCondition("mail", v1alpha1.ConditionReplicated, metav1.ConditionFalse, v1alpha1.ReasonReplicasRefused)
	if !strings.Contains(is.Message, "1 of 3 replicas") {
		t.Errorf("the message is %q", is.Message)
	}
	e.waitUntilReady("mail")

	e.patchQueue("mail", `{"spec":{"storage":{"replicas":3}}}`)
	is = e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRefusedByBroker)
	if !strings.Contains(is.Message, "the server refuses 3 replicas") {
		t.Errorf("the message is %q", is.Message)
	}
	e.patchQueue("mail", `{"spec":{"storage":{"replicas":1}}}`)
	e.waitForCondition("mail", v1alpha1.ConditionReplicated, metav1.ConditionFalse, v1alpha1.ReasonSingleReplica)
	e.waitUntilReady("mail")

	e.createQueue("post", "storage: {replicas: 3}")
	e.waitForCondition("post", v1alpha1.ConditionConfigSynced, metav1.ConditionUnknown, v1alpha1.ReasonRefusedByBroker)
	e.waitForCondition("post", v1alpha1.ConditionReplicated, metav1.ConditionUnknown, v1alpha1.ReasonRefusedByBroker)
}
