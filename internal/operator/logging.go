package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// logOptions are the options of the log without flags. A stack trace says nothing about an error that the API server returned.
func logOptions() zap.Options {
	return zap.Options{TimeEncoder: zapcore.RFC3339NanoTimeEncoder, StacktraceLevel: zapcore.DPanicLevel}
}

// SetLogger makes everything in the process log to standard error, with these options. What fails after ctx ends is no error.
func SetLogger(ctx context.Context, options *zap.Options) logr.Logger {
	logger := logr.New(sink{zap.New(zap.UseFlagOptions(options)).GetSink(), ctx.Done()})
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)                                // client-go logs through klog
	slog.SetDefault(slog.New(logr.ToSlogHandler(logger))) // also of the package log
	return logger
}

// sink writes an error line only for what a person must do something about. What the next attempt repairs is a debug line.
type sink struct {
	logr.LogSink

	// stopped is closed when the process is to end.
	stopped <-chan struct{}
}

// Error implements logr.LogSink.
func (s sink) Error(err error, message string, keysAndValues ...any) {
	isStopped := false
	select {
	case <-s.stopped:
		isStopped = true
	default:
	}
	if !isStopped && (err == nil || !repairsItself(err, message)) {
		s.LogSink.Error(err, message, keysAndValues...)
		return
	}
	const debug = 1
	if s.Enabled(debug) {
		s.Info(debug, message, append(keysAndValues, "error", fmt.Sprint(err))...)
	}
}

// WithValues implements logr.LogSink.
func (s sink) WithValues(keysAndValues ...any) logr.LogSink {
	return sink{s.LogSink.WithValues(keysAndValues...), s.stopped}
}

// WithName implements logr.LogSink.
func (s sink) WithName(name string) logr.LogSink { return sink{s.LogSink.WithName(name), s.stopped} }

// watchFailed is the message of client-go about a watch, which is restored about a second after the API server is.
const watchFailed = "Failed to watch"

// repairsItself reports whether nobody has to do anything about an error: a request that was given up, a conflict with another write, a
// namespace that is being deleted, or an API server that does not answer a watch.
func repairsItself(err error, message string) bool {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		for _, one := range joined.Unwrap() {
			if !repairsItself(one, message) {
				return false
			}
		}
		return true
	}
	switch decision.ClassOf(err) {
	case decision.Conflict, decision.NamespaceTerminating:
		return true
	case decision.PermissionMissing:
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, kube.ErrStale) || message == watchFailed
}
