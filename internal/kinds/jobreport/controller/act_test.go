package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// The tests in test/integration cover the answers of a real API server.
func TestAFailedExportDoesNotAffectTheJobReport(t *testing.T) {
	for name, row := range map[string]struct {
		get  func(context.Context) error
		want string
	}{
		"reading the Report times out":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "Timeout"},
		"the connection breaks":           {func(context.Context) error { return errConnectionRefused }, v1alpha1.ReasonWriteFailed},
		"its version cannot be converted": {func(context.Context) error { return apierrors.NewInternalError(errConnectionRefused) }, v1alpha1.ReasonWriteFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeCluster(t, "a", "b")
				cluster.addJobs("a", 2, 48*time.Hour)
				cluster.reconciler.options.OpenReports = true
				cluster.useTheClockOfTheBubble()
				cluster.reconciler.live = interceptor.NewClient(cluster.reconciler.client.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
						if _, isReport := into.(*unstructured.Unstructured); isReport {
							return row.get(ctx)
						}
						return c.Get(ctx, key, into, options...)
					},
				})
				scanned, failed := countMetric(t, "writes_total", "changed"), countMetric(t, "openreports_errors_total", row.want)
				startTime := time.Now()
				cluster.reconcileAll()
				elapsed := time.Since(startTime)
				require.True(t, elapsed <= maxExportDuration, "the export took %s, want at most %s", elapsed, maxExportDuration)
				for _, namespace := range []string{"a", "b"} {
					cluster.wantScanned(namespace)
					cluster.wantCondition(namespace, v1alpha1.ConditionOpenReportsReady, metav1.ConditionFalse, row.want)
				}
				scanned(2)
				failed(2)
				assert.Equal(t, "writes after a second failure", []string(nil), cluster.reconcileAll())
			})
		})
	}
}
