package component

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var inside = Layout{Root: NodeRoot}

func TestAnAPIServerForSimulatedPodsListensOnLoopbackOnly(t *testing.T) {
	config := NewControlPlane(Layout{Root: "/clusters/a"}, Endpoint{Bind: "127.0.0.1", Port: 1234}, time.Second)
	for _, want := range []string{"--bind-address=127.0.0.1", "--secure-port=1234", "--endpoint-reconciler-type=none"} {
		if !slices.Contains(config.APIServer, want) {
			t.Errorf("no %s", want)
		}
	}
}

// The two halves live in different modules, so that no compiler compares them.
func TestControlPlaneConfigurationMatchesItsReader(t *testing.T) {
	reader, err := os.ReadFile("../../modules/kubernetes/controlplane/config.go")
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(ControlPlane{})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	for field := range fields {
		if !strings.Contains(string(reader), "\n\t"+field+" ") {
			t.Errorf("modules/kubernetes/controlplane.Config has no field %s", field)
		}
	}
}

func TestKubeletStaysInTheClustersControlGroup(t *testing.T) {
	config := Kubelet(inside, "localcluster-a").(object)
	if config["cgroupRoot"] != "/localcluster-a" {
		t.Errorf("cgroupRoot %v", config["cgroupRoot"])
	}
}

func TestKubeProxyLeavesTheMachinesConnectionTrackingAlone(t *testing.T) {
	conntrack := KubeProxy(inside).(object)["conntrack"].(object)
	for _, setting := range []string{"maxPerCore", "min"} {
		if conntrack[setting] != 0 {
			t.Errorf("%s is %v", setting, conntrack[setting])
		}
	}
}
