package component

import (
	"fmt"
	"time"
)

// ControlPlane is the configuration file of `kubernetes control-plane`. Its
// other half is modules/kubernetes/controlplane.Config.
type ControlPlane struct {
	Etcd              Etcd
	APIServer         []string
	ControllerManager []string
	Scheduler         []string
	Volumes           Volumes
	Kubeconfig        string
	JobBatchPeriod    time.Duration
}

// Etcd configures where etcd stores its data and listens.
type Etcd struct {
	Dir       string
	ClientURL string
	PeerURL   string
}

// Volumes configures the provisioner's name and the directory of its volumes.
type Volumes struct {
	Provisioner string
	Dir         string
}

// Endpoint is where the API server listens.
type Endpoint struct {
	Bind string
	Port int
	// Advertise is the address at which Pods reach the API server. It is empty if
	// all Pods are simulated.
	Advertise string
}

// NewControlPlane renders the configuration of a control plane.
func NewControlPlane(l Layout, endpoint Endpoint, jobBatch time.Duration) ControlPlane {
	etcd := Etcd{
		Dir: l.File("etcd"),
		// Sockets in a directory of the cluster's owner: etcd does not authenticate
		// clients, and any user may connect to a port. They are relative to the working
		// directory, since a socket's path must be short, and have a port in their
		// names, which etcd requires.
		ClientURL: "unix://etcd:0",
		PeerURL:   "unix://etcd-peer:0",
	}
	return ControlPlane{
		Etcd:              etcd,
		APIServer:         apiServer(l, endpoint, etcd.ClientURL),
		ControllerManager: controllerManager(l),
		Scheduler:         scheduler(l),
		Volumes:           Volumes{Provisioner: VolumeProvisioner, Dir: l.Volumes()},
		Kubeconfig:        l.PKI("control-plane.kubeconfig"),
		JobBatchPeriod:    jobBatch,
	}
}

func apiServer(l Layout, endpoint Endpoint, etcd string) []string {
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + endpoint.Bind,
		fmt.Sprintf("--secure-port=%d", endpoint.Port),
		"--tls-cert-file=" + l.PKI("apiserver.crt"),
		"--tls-private-key-file=" + l.PKI("apiserver.key"),
		"--client-ca-file=" + l.PKI("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--admission-control-config-file=" + l.File(admissionFile),
		"--allow-privileged=true",
		"--profiling=false",
		"--service-cluster-ip-range=" + ServiceSubnet,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.PKI("service-account.pub"),
		"--service-account-signing-key-file=" + l.PKI("service-account.key"),
		"--requestheader-client-ca-file=" + l.PKI("ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.PKI("front-proxy-client.crt"),
		"--proxy-client-key-file=" + l.PKI("front-proxy-client.key"),
	}
	if endpoint.Advertise == "" {
		// Loopback is no valid endpoint of the Service kubernetes.
		return append(args, "--advertise-address="+endpoint.Bind, "--endpoint-reconciler-type=none")
	}
	return append(args,
		"--advertise-address="+endpoint.Advertise,
		"--kubelet-certificate-authority="+l.PKI("ca.crt"),
		"--kubelet-client-certificate="+l.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+l.PKI("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
	)
}

func controllerManager(l Layout) []string {
	return append(clientArgs(l, "controller-manager"),
		"--service-account-private-key-file="+l.PKI("service-account.key"),
		"--root-ca-file="+l.PKI("ca.crt"),
		"--cluster-signing-cert-file="+l.PKI("ca.crt"),
		"--cluster-signing-key-file="+l.PKI("ca.key"),
		"--use-service-account-credentials=true",
		"--flex-volume-plugin-dir="+l.File("flexvolume"),
		"--pvclaimbinder-sync-period=1s", // a claim waits for this; upstream's default is 15 s
		"--concurrent-job-syncs=20",
	)
}

func scheduler(l Layout) []string { return clientArgs(l, "scheduler") }

// clientArgs are the arguments that the clients of the API server share.
func clientArgs(l Layout, component string) []string {
	return []string{
		"--kubeconfig=" + l.PKI(component+".kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}
}
