package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const deploymentTimeout = 2 * time.Minute

// deployOperator deploys the operator with settings that make the demo fast.
func (d *demoRun) deployOperator(ctx context.Context, settings []string) error {
	kubectl := d.cluster.KubectlCommand()
	args := []string{"deploy", "IMG=" + d.image, "NAMESPACES=*", "REPORT_NAMESPACES=" + staleNamespace, "SETTINGS=" + strings.Join(settings, ",")}
	if d.page.Verbose {
		d.page.PrintLine("  $ make %s", strings.Join(quoteArguments(args), " "))
	}
	if err := shell.RunQuietly(ctx, "make", slices.Concat([]string{"--no-print-directory", "KUBECTL=" + strings.Join(kubectl, " ")}, args)...); err != nil {
		return err
	}
	if err := d.runKubectlQuietly(ctx, "annotate", "--overwrite", "namespace", operatorNamespace, cluster.MarkerAnnotation+"=true"); err != nil {
		return err
	}
	return d.waitForOperator(ctx)
}

// deployBroker deploys NATS.
func (d *demoRun) deployBroker(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-k", "config/nats"},
		{"annotate", "--overwrite", "namespace", brokerNamespace, cluster.MarkerAnnotation + "=true"},
		{"-n", brokerNamespace, "rollout", "status", "statefulset/nats", "--timeout=" + deploymentTimeout.String()},
	} {
		if err := d.runKubectlQuietly(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// waitForOperator waits until only Pods of the deployed version exist, and the API server reaches their webhook.
func (d *demoRun) waitForOperator(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deploymentTimeout, fmt.Errorf("the operator was not ready within %s", deploymentTimeout))
	defer cancel()
	return d.waitUntil(ctx, "the operator", func(ctx context.Context) (bool, error) {
		deployment := &appsv1.Deployment{}
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "yardmaster"}, deployment); err != nil {
			return false, err
		}
		if !isRolledOut(deployment) {
			return false, nil
		}
		var pods corev1.PodList
		err := d.client.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
		if err != nil || len(pods.Items) != int(*deployment.Spec.Replicas) {
			return false, err
		}
		return d.isWebhookReachable(ctx), nil
	})
}

// isWebhookReachable reports whether the API server can call the webhook. kube-proxy routes to a Pod a moment after it is
// ready.
func (d *demoRun) isWebhookReachable(ctx context.Context) bool {
	checked := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "webhook-check"}}
	return !apierrors.IsInternalError(d.client.Create(ctx, checked, client.DryRunAll))
}

func isRolledOut(deployment *appsv1.Deployment) bool {
	status := deployment.Status
	return status.ObservedGeneration == deployment.Generation && status.Replicas > 0 &&
		status.UpdatedReplicas == status.Replicas && status.AvailableReplicas == status.Replicas
}
