package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Process is one part of a stage. It can be killed, frozen and started again.
type Process struct {
	Name    string
	program string
	args    []string
	log     string

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// Start starts the process, again if it has ended, with some more arguments if
// need be. Output is appended to its log.
func (p *Process) Start(more ...string) error {
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	defer out.Close()
	cmd := exec.Command(p.program, append(slices.Clone(p.args), more...)...)
	cmd.Stdout, cmd.Stderr = out, out
	// Its own group: a ^C on the terminal is for us to handle, in order.
	// And it does not outlive us, however we end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended stands in its log
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	return nil
}

// PID is the process's ID while it runs.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the process as a crash would and waits for its end.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, 0) }

// Stop asks the process to end, and makes it after three seconds.
func (p *Process) Stop() error {
	_ = p.Thaw() // a frozen process cannot hear
	return p.end(syscall.SIGTERM, 3*time.Second)
}

func (p *Process) end(first syscall.Signal, patience time.Duration) error {
	if err := p.signal(first); err != nil {
		return err
	}
	if patience > 0 {
		select {
		case <-p.exited:
			return nil
		case <-time.After(patience):
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Freeze stops the process where it stands, sockets open; Thaw lets it go on.
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

// Hangup asks the process to read its files again.
func (p *Process) Hangup() error { return p.signal(syscall.SIGHUP) }

func (p *Process) signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Log is all that the process has printed, over its restarts.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
