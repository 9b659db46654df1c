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

func TestAnAPIServerForRealPodsIsReachedAtTheNodesAddress(t *testing.T) {
	config := NewControlPlane(inside, Endpoint{Bind: "0.0.0.0", Port: 6443, Advertise: NodeAddress}, time.Second)
	if want := "--advertise-address=" + NodeAddress; !slices.Contains(config.APIServer, want) {
		t.Errorf("no %s", want)
	}
	if slices.Contains(config.APIServer, "--endpoint-reconciler-type=none") {
		t.Error("the Service kubernetes has no endpoint")
	}
}

func TestJobBatchPeriodIsConfigurable(t *testing.T) {
	config := NewControlPlane(inside, Endpoint{}, 50*time.Millisecond)
	if config.JobBatchPeriod != 50*time.Millisecond {
		t.Errorf("got %s", config.JobBatchPeriod)
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

func TestContainerdUsesTheProgramsThatWereBuilt(t *testing.T) {
	config, err := Containerd{Root: "/root", Runc: "/programs/runc", CNIPlugins: "/programs/cni", CNIConfig: "/config", Snapshotter: "native"}.Render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`BinaryName = "/programs/runc"`, `bin_dirs = ["/programs/cni"]`, `conf_dir = "/config"`,
		`snapshotter = "native"`, `sandbox = "` + PauseImage + `"`, `address = "` + ContainerdSocket + `"`,
	} {
		if !strings.Contains(config, want) {
			t.Errorf("no %s in:\n%s", want, config)
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

func TestEveryCertificateThatTheArgumentsNameIsCreated(t *testing.T) {
	l := Layout{Root: t.TempDir()}
	if err := Certificates(l, "https://127.0.0.1:1", "https://127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	config := NewControlPlane(l, Endpoint{Advertise: NodeAddress}, time.Second)
	for _, arg := range slices.Concat(config.APIServer, config.ControllerManager, config.Scheduler) {
		_, path, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(path, l.File("pki")) {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

func TestAPIServerCallsWebhooksWithAClientCertificate(t *testing.T) {
	l := Layout{Root: t.TempDir()}
	if err := Certificates(l, "https://127.0.0.1:1", "https://127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	if err := WriteAdmission(l); err != nil {
		t.Fatal(err)
	}
	for file, references := range map[string][]string{
		admissionFile:      {l.File(webhookClientsFile)},
		webhookClientsFile: {l.PKI("apiserver-webhook-client.crt"), l.PKI("apiserver-webhook-client.key")},
	} {
		content, err := os.ReadFile(l.File(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range references {
			if _, err := os.Stat(path); err != nil || !strings.Contains(string(content), path) {
				t.Errorf("%s does not refer to %s: %v\n%s", file, path, err, content)
			}
		}
	}
}

func TestAdministratorsKubeconfigUsesTheAddressOutsideTheNode(t *testing.T) {
	l := Layout{Root: t.TempDir()}
	if err := Certificates(l, "https://127.0.0.1:1", "https://127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"admin": "https://127.0.0.1:2\n", "kubelet": "https://127.0.0.1:1\n"} {
		content, err := os.ReadFile(l.PKI(name + ".kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), want) {
			t.Errorf("%s's server is not %s", name, want)
		}
	}
}
