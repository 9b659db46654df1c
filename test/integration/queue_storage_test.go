package integration

import (
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
