// network-policies enforces the cluster's NetworkPolicies for the Pods of a node.
//
// The kernel queues the first packet of each connection that a Pod opens, and
// kube-network-policies decides whether it may pass. Packets wait for the verdict, and
// are dropped while this program does not run: none passes unchecked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

// options describe the local cluster.
type options struct {
	kubeconfig string
	node       string
	pods       netip.Prefix
	dns        netip.Addr
	ready      string
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&o.node, "node", "", "the name of this node")
	flag.TextVar(&o.pods, "pods", netip.Prefix{}, "the addresses of Pods")
	flag.TextVar(&o.dns, "dns", netip.Addr{}, "the address of the cluster's DNS, if that is no Pod")
	flag.StringVar(&o.ready, "ready", "", "a unix socket to listen on once policies hold")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, o)
	stop()
	if err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The supervisor restarts this program, which then connects to the next containerd.
	started, err := newRuntimePods(ctx, func() { end(errors.New("containerd exited")) })
	if err != nil {
		return fmt.Errorf("listing containerd's Pods: %w", err)
	}
	known, err := newPods(factory, started)
	if err != nil {
		return err
	}
	policies := networkpolicy.NewStandardNetworkPolicy(o.node,
		factory.Core().V1().Namespaces(), factory.Core().V1().Pods(), factory.Networking().V1().NetworkPolicies())
	factory.Start(ctx.Done())
	// Without policies everything would be allowed.
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("cannot list %v", kind)
		}
	}
	engine := networkpolicy.NewPolicyEngine(withDNS{known, o.dns.String()}, []api.PolicyEvaluator{policies})
	closeQueue, err := openQueue(ctx, &judge{known: known, engine: engine})
	if err != nil {
		return fmt.Errorf("opening the packet queue: %w", err)
	}
	defer closeQueue()
	if err := divert(o.pods); err != nil {
		return fmt.Errorf("making the kernel queue packets: %w", err)
	}
	if err := listen(ctx, o.ready); err != nil {
		return fmt.Errorf("signaling that policies are enforced: %w", err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// listen signals that policies are enforced, by a socket that the supervisor waits for.
func listen(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // left by an earlier process that was killed
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer listener.Close()
	log.Print("policies hold")
	<-ctx.Done()
	return nil
}
