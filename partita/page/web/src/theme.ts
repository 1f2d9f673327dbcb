// Dark or light: as the system has it, until somebody chooses.

const KEY = "partita-theme";

function dark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a file opened where pages may keep nothing
  }
}

export function startTheme(): void {
  const chosen = remembered();
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}

export function switchTheme(): void {
  const chosen = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    return;
  }
}
