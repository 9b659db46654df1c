package sessionarchive

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/podclient"
)

const (
	// maxLogBytes bounds the log of a container. Nodes keep less by default.
	maxLogBytes = 64 << 20
	maxRunBytes = 1 << 30
	// logsTimeout is shorter than the deadline of the Job, so that the container can report a result.
	logsTimeout = 14 * time.Minute
	// maxResultBytes bounds the result, of which Kubernetes keeps 4096 bytes.
	maxResultBytes = 1024
	resultMode     = 0o600
)

type logSettings struct {
	storeSettings

	namespace, sequenceUID, path string
	tokenDirectory, resultFile   string
	jobs                         jobList
	omittedJobs                  int
	maxLogBytes, maxRunBytes     int64
	maxPods                      int
}

// RunLogs archives the logs of a run of a SequentialJob.
func RunLogs(ctx context.Context, args []string, getenv func(string) string, errOut io.Writer) error {
	s := &logSettings{maxLogBytes: maxLogBytes, maxRunBytes: maxRunBytes, maxPods: maxRunPods}
	f := flag.NewFlagSet("session-runner archive-logs", flag.ContinueOnError)
	f.SetOutput(errOut)
	s.register(f)
	f.StringVar(&s.namespace, "namespace", "", "Namespace of the Pods.")
	f.StringVar(&s.sequenceUID, "sequence-uid", "", "UID of the SequentialJob.")
	f.StringVar(&s.path, "path", "", "Directory of the run in the store.")
	f.Var(&s.jobs, "job", "A Job whose Pods are read: STEP/ATTEMPT/UID. Repeat it for each Job.")
	f.IntVar(&s.omittedJobs, "omitted-jobs", 0, "Number of further Jobs of the run, whose Pods are not read.")
	f.StringVar(&s.tokenDirectory, "token-directory", podclient.TokenDirectory, "Directory with the token and the certificate of the API server.")
	f.StringVar(&s.resultFile, "result-file", "/dev/termination-log", "File for what is archived, or why it is not.")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, logsTimeout)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := slog.New(slog.NewJSONHandler(errOut, nil))
	result, err := s.archiveRun(ctx, getenv, log)
	if err != nil {
		result = err.Error()
	}
	result = strings.ToValidUTF8(result[:min(len(result), maxResultBytes)], "")
	if resultErr := os.WriteFile(s.resultFile, []byte(result), resultMode); resultErr != nil {
		log.Error("Reporting the result", "error", resultErr)
	}
	return err
}

// archiveRun archives the logs and returns a summary.
func (s *logSettings) archiveRun(ctx context.Context, getenv func(string) string, log *slog.Logger) (string, error) {
	if s.namespace == "" || s.sequenceUID == "" || s.path == "" || len(s.jobs) == 0 {
		return "", errors.New("--namespace, --sequence-uid, --path and --job are required")
	}
	client, err := podclient.New(getenv, s.tokenDirectory)
	if err != nil {
		return "", err
	}
	opened, temp, err := s.open()
	if err != nil {
		return "", err
	}
	a := &logArchive{settings: s, pods: &podReader{client, s.namespace, s.maxPods}, store: opened, temp: temp, log: log, left: s.maxRunBytes}
	return a.run(ctx)
}

type stepJob struct {
	step    string
	attempt int
	uid     string
}

type jobList []stepJob

// String implements flag.Value.
func (l *jobList) String() string { return fmt.Sprint([]stepJob(*l)) }

// Set implements flag.Value.
func (l *jobList) Set(value string) error {
	step, rest, found := strings.Cut(value, "/")
	number, uid, foundToo := strings.Cut(rest, "/")
	attempt, err := strconv.Atoi(number)
	if !found || !foundToo || err != nil || uid == "" {
		return fmt.Errorf("%q is not STEP/ATTEMPT/UID", value)
	}
	*l = append(*l, stepJob{step, attempt, uid})
	return nil
}
