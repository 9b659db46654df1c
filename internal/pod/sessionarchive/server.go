package sessionarchive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessionsocket"
)

const (
	// maxTranscriptBytes bounds a transcript: an agent can write any amount.
	maxTranscriptBytes = 128 << 20
	// maxFilesBytes bounds the files beside a transcript, such as commits that could not be pushed.
	maxFilesBytes = 2 << 30
	// maxLineBytes bounds a line. The runner shortens the texts in its events.
	maxLineBytes = 1 << 20
	// storeTimeout bounds an upload with its retries. After SIGTERM, the kubelet ends it earlier.
	storeTimeout = 5 * time.Minute
)

// settings are the flags and inputs of the container.
type settings struct {
	storeSettings

	directory               string
	namespace, session, job string
	maxBytes                int64
}

// Run stores the transcript of one attempt, and then waits for SIGTERM.
func Run(ctx context.Context, args []string, getenv func(string) string, errOut io.Writer) error {
	s := &settings{maxBytes: maxTranscriptBytes}
	f := flag.NewFlagSet("session-runner archive", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&s.directory, "directory", "/archive", "Directory that the agent's container mounts read-only.")
	s.register(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	for name, into := range map[string]*string{"AGENTIC_NAMESPACE": &s.namespace, "AGENTIC_SESSION": &s.session, "AGENTIC_JOB": &s.job} {
		if *into = getenv(name); *into == "" {
			return fmt.Errorf("%s is not set", name)
		}
	}
	store, temp, err := s.open()
	if err != nil {
		return err
	}
	a := &archive{settings: s, store: store, temp: temp, log: slog.New(slog.NewJSONHandler(errOut, nil))}
	terminated, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := a.serve(ctx, terminated); err != nil {
		return err
	}
	<-terminated.Done() // an exited container is restarted, and would then serve the agent
	return nil
}

type archive struct {
	settings *settings
	store    store
	// temp is the directory for the incomplete transcript. The agent's container does not mount it.
	temp string
	log  *slog.Logger
}

// serve accepts only the connection of the runner, which connects before it starts the agent.
func (a *archive) serve(ctx, terminated context.Context) error {
	listener, err := sessionsocket.Listen(ctx, filepath.Join(a.settings.directory, socketName))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(terminated, func() { _ = listener.Close() })
	defer stop()
	connection, err := listener.Accept()
	if terminated.Err() != nil {
		return nil // the runner never connected
	}
	if err := errors.Join(err, listener.Close()); err != nil {
		return err
	}
	defer connection.Close()
	_, _ = io.WriteString(connection, greeting)
	// The kubelet sends SIGTERM when the runner has ended, so its transcript is read to the end nevertheless.
	stored := a.receive(ctx, connection)
	raw, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	_, _ = connection.Write(raw) // the runner may have ended
	return nil
}

func (a *archive) receive(ctx context.Context, from net.Conn) Stored {
	stored := Stored{}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := a.storeTranscript(ctx, from, &stored)
	if err != nil {
		stored.Error = err.Error()
		_, _ = io.Copy(io.Discard, from) // the runner reads the error after it has written everything
		a.log.Error("The transcript is not archived", "error", err)
		return stored
	}
	a.log.Info("The transcript is archived", "location", stored.Location, "truncated", stored.Truncated)
	return stored
}

func (a *archive) storeTranscript(ctx context.Context, from io.Reader, stored *Stored) error {
	start := time.Now().UTC()
	file, err := os.CreateTemp(a.temp, ".transcript-")
	if err != nil {
		return err
	}
	defer file.Close()
	defer os.Remove(file.Name()) // without effect in a claim, where it was renamed
	// A session can be deleted and created again, so the name also has the time.
	base := path.Join(a.settings.prefix, a.settings.namespace, a.settings.session, start.Format("20060102T150405.000Z")+"-"+a.settings.job)
	files := &receivedFiles{temp: a.temp, open: map[string]*os.File{}, store: func(file *os.File, name string) error {
		location, err := a.store.put(ctx, file, base+"-"+name)
		if err != nil {
			return err
		}
		if stored.Files == nil {
			stored.Files = map[string]string{}
		}
		stored.Files[name] = location
		a.log.Info("A file is archived", "location", location)
		return nil
	}}
	defer files.discard()
	if stored.Truncated, err = copyTranscript(file, from, a.settings.maxBytes, files.receive); err != nil {
		return err
	}
	stored.Location, err = a.store.put(ctx, file, base+".ndjson")
	return errors.Join(err, files.err)
}

// receivedFiles are the files that a runner sends in the lines of its transcript.
type receivedFiles struct {
	temp  string
	open  map[string]*os.File
	store func(file *os.File, name string) error
	bytes int
	// err is the first error. The transcript is stored nevertheless.
	err error
}

// fileName is the name of a file beside a transcript, without a directory.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

func (f *receivedFiles) receive(line []byte) {
	if f.err == nil {
		if err := f.receivePart(line); err != nil {
			f.err = fmt.Errorf("storing a file: %w", err)
		}
	}
}

func (f *receivedFiles) receivePart(line []byte) error {
	var part filePart
	if err := json.Unmarshal(line, &part); err != nil {
		return err
	}
	file := f.open[part.File]
	if f.bytes += len(part.Data); f.bytes > maxFilesBytes || !fileName.MatchString(part.File) {
		return fmt.Errorf("the file %q is too large, or cannot have this name", part.File)
	}
	if file == nil {
		var err error
		if file, err = os.CreateTemp(f.temp, ".file-"); err != nil {
			return err
		}
		f.open[part.File] = file
	}
	if _, err := file.Write(part.Data); err != nil || !part.End {
		return err
	}
	return f.store(file, part.File)
}

// discard removes what is not stored: a part of a file is of no use.
func (f *receivedFiles) discard() {
	for _, file := range f.open {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
}

// copyTranscript copies lines of up to this many bytes in total, and reports whether it left out the rest. Lines with parts of files
// go to receiveFile. A runner that is killed ends the transcript at that point.
func copyTranscript(to io.Writer, from io.Reader, maxBytes int64, receiveFile func(line []byte)) (truncated bool, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(filePrefix)) {
			receiveFile(lines.Bytes())
			continue
		}
		line := append(lines.Bytes(), '\n')
		if maxBytes -= int64(len(line)); maxBytes < 0 {
			truncated = true // the rest is read, because the runner writes it
			continue
		}
		if _, err := to.Write(line); err != nil {
			return truncated, err
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return truncated, err
	}
	if truncated {
		_, err = io.WriteString(to, `{"type":"runner","text":"The transcript is too long. Its rest is not archived."}`+"\n")
	}
	return truncated, err
}
