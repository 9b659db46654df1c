package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/internal/kube"
)

func TestAnErrorInTheLogIsForSomebody(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	conflict := apierrors.NewConflict(jobs, "a", errors.New("the object has been modified"))
	forbidden := apierrors.NewForbidden(jobs, "a", errors.New("no RBAC policy matched"))
	terminating := apierrors.NewForbidden(jobs, "a", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refused := errors.New("dial tcp 127.0.0.1:6443: connect: connection refused")
	for title, row := range map[string]struct {
		err       error
		message   string
		isStopped bool
		want      string
	}{
		"a conflict":                                 {fmt.Errorf("writing the status: %w", conflict), "Reconciler error", false, "debug"},
		"an outdated object":                         {kube.ErrStale, "Reconciler error", false, "debug"},
		"an event in a terminating namespace":        {terminating, "Server rejected event (will not retry!)", false, "debug"},
		"a request that was given up":                {context.Canceled, "Reconciler error", false, "debug"},
		"several that need nobody":                   {errors.Join(conflict, context.Canceled), "Reconciler error", false, "debug"},
		"an API server that does not answer a watch": {refused, "Failed to watch", false, "debug"},
		"a failure at the end of the process":        {refused, "Reconciler error", true, "debug"},
		"an API server that does not answer":         {refused, "Reconciler error", false, "error"},
		"a missing permission":                       {forbidden, "Reconciler error", false, "error"},
		"a missing permission to watch":              {forbidden, "Failed to watch", false, "error"},
		"several of which one needs somebody":        {errors.Join(conflict, forbidden), "Reconciler error", false, "error"},
		"an error without a cause":                   {nil, "No session starts", false, "error"},
	} {
		t.Run(title, func(t *testing.T) {
			var output bytes.Buffer
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if row.isStopped {
				stop()
			}
			options := logOptions()
			options.Level = zapcore.DebugLevel
			logger := logr.New(sink{zap.New(zap.UseFlagOptions(&options), zap.WriteTo(&output)).GetSink(), ctx.Done()})
			logger.WithName("a").WithValues("b", 1).Error(row.err, row.message)
			var line struct{ Level, Msg, Stacktrace string }
			if err := json.Unmarshal(output.Bytes(), &line); err != nil || line.Level != row.want || line.Msg != row.message || line.Stacktrace != "" {
				t.Errorf("%v: %s", err, output.String())
			}
		})
	}
}
